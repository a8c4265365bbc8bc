//! The engines, as the suite sees them.

use std::path::PathBuf;

use orlop_store::{Config, Endpoint, Store};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    SqliteFile,
    SqliteMemory,
    /// Two stores on one file.
    SqliteShared,
}

/// An empty database of one kind, gone with its value.
#[derive(Debug)]
pub(crate) struct Database {
    kind: Kind,
    folder: tempfile::TempDir,
}

impl Database {
    pub(crate) fn new(kind: Kind) -> Self {
        Self { kind, folder: tempfile::tempdir().unwrap() }
    }

    /// The file, of an engine that has one.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("store.db")
    }

    /// A path in the database's own folder.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// As the defaults, but history stays until it is compacted.
    pub(crate) fn config(&self) -> Config {
        let endpoint = match self.kind {
            Kind::SqliteMemory => Endpoint::Memory,
            Kind::SqliteFile | Kind::SqliteShared => Endpoint::Sqlite(self.file()),
        };
        Config { retention: None, ..Config::new(endpoint) }
    }

    pub(crate) async fn open(&self) -> Store {
        self.open_with(|_| {}).await
    }

    pub(crate) async fn open_with(&self, change: impl FnOnce(&mut Config)) -> Store {
        let mut config = self.config();
        change(&mut config);
        Store::open(config).await.unwrap()
    }

    /// A store, and another one on the same database where the engine is shared.
    pub(crate) async fn pair(&self) -> (Store, Store) {
        self.pair_with(|_| {}).await
    }

    pub(crate) async fn pair_with(&self, change: impl Fn(&mut Config)) -> (Store, Store) {
        let store = self.open_with(&change).await;
        let peer = match self.kind {
            Kind::SqliteShared => self.open_with(&change).await,
            Kind::SqliteFile | Kind::SqliteMemory => store.clone(),
        };
        (store, peer)
    }
}

/// Makes a module of tests, one for each behaviour, on one kind of engine.
macro_rules! on_engine {
    ($module:ident, $kind:ident, $($behaviour:ident)*) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $behaviour() {
                    use crate::database::{Database, Kind};
                    super::$behaviour(&Database::new(Kind::$kind)).await;
                }
            )*
        }
    };
}

/// Behaviours of every engine.
macro_rules! on_every_engine {
    ($($behaviour:ident,)*) => {
        on_engine!(sqlite_file, SqliteFile, $($behaviour)*);
        on_engine!(sqlite_memory, SqliteMemory, $($behaviour)*);
        on_engine!(sqlite_shared, SqliteShared, $($behaviour)*);
    };
}

/// Behaviours of engines whose data outlives the process.
macro_rules! on_durable_engines {
    ($($behaviour:ident,)*) => {
        on_engine!(sqlite_file, SqliteFile, $($behaviour)*);
    };
}

/// Behaviours of SQLite files alone.
macro_rules! on_sqlite_files {
    ($($behaviour:ident,)*) => {
        on_engine!(sqlite_file, SqliteFile, $($behaviour)*);
    };
}
