//! The engines under test.

use std::path::PathBuf;

use orlop_store::{Config, Endpoint, Store};
use orlop_testbed::Cluster;
use rusqlite::Connection;

use crate::shorthand::TIMEOUT;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    SqliteFile,
    SqliteMemory,
    /// Two stores on one file.
    SqliteShared,
    Postgres,
    /// Every batch under the exclusive lock: `Config::speculative_writes` off.
    PostgresLocked,
    /// Two stores on one database.
    PostgresShared,
}

/// Returns the PostgreSQL server that all tests of this program share.
fn cluster() -> &'static Cluster {
    Cluster::shared().unwrap()
}

/// An empty database of one kind, removed on drop.
#[derive(Debug)]
pub(crate) struct Database {
    kind: Kind,
    folder: tempfile::TempDir,
    /// Its name, if it is on PostgreSQL.
    name: Option<String>,
}

impl Database {
    pub(crate) fn new(kind: Kind) -> Self {
        let postgres = matches!(kind, Kind::Postgres | Kind::PostgresLocked | Kind::PostgresShared);
        let name = postgres.then(|| cluster().create_database().unwrap());
        Self { kind, folder: tempfile::tempdir().unwrap(), name }
    }

    /// Returns the path of the database file.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("store.db")
    }

    /// Returns a path beside the database.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the defaults without automatic compaction.
    pub(crate) fn config(&self) -> Config {
        let endpoint = match (self.kind, &self.name) {
            (Kind::SqliteMemory, _) => Endpoint::Memory,
            (_, Some(name)) => Endpoint::parse(&cluster().url(name)).unwrap(),
            _ => Endpoint::Sqlite(self.file()),
        };
        let speculative_writes = self.kind != Kind::PostgresLocked;
        Config { retention: None, speculative_writes, ..Config::new(endpoint) }
    }

    /// Runs a statement without the store. Returns the result as text.
    pub(crate) fn sql(&self, statement: &str) -> String {
        if let Some(name) = &self.name {
            return cluster()
                .sql(name, &format!("set search_path = orlop; {statement}"))
                .unwrap()
                .trim()
                .into();
        }
        let connection = Connection::open(self.file()).unwrap();
        connection.busy_timeout(TIMEOUT).unwrap();
        let mut prepared = connection.prepare(statement).unwrap();
        let mut rows = prepared.query([]).unwrap();
        let number = rows.next().unwrap().map(|row| row.get::<_, i64>(0).unwrap().to_string());
        number.unwrap_or_default()
    }

    /// Formats hexadecimal bytes as a literal of the engine's SQL.
    pub(crate) fn bytes(&self, hex: &str) -> String {
        if self.name.is_some() { format!(r"'\x{hex}'") } else { format!("x'{hex}'") }
    }

    pub(crate) async fn open(&self) -> Store {
        self.open_with(|_| {}).await
    }

    pub(crate) async fn open_with(&self, change: impl FnOnce(&mut Config)) -> Store {
        let mut config = self.config();
        change(&mut config);
        Store::open(config).await.unwrap()
    }

    /// Opens a store, and another one on the same database where the engine is shared.
    pub(crate) async fn pair(&self) -> (Store, Store) {
        self.pair_with(|_| {}).await
    }

    pub(crate) async fn pair_with(&self, change: impl Fn(&mut Config)) -> (Store, Store) {
        let store = self.open_with(&change).await;
        let peer = match self.kind {
            Kind::SqliteShared | Kind::PostgresShared => self.open_with(&change).await,
            Kind::SqliteFile | Kind::SqliteMemory | Kind::Postgres | Kind::PostgresLocked => store.clone(),
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
        on_engine!(postgres, Postgres, $($behaviour)*);
        on_engine!(postgres_locked, PostgresLocked, $($behaviour)*);
        on_engine!(postgres_shared, PostgresShared, $($behaviour)*);
    };
}

/// Behaviours of engines whose data outlives the process.
macro_rules! on_durable_engines {
    ($($behaviour:ident,)*) => {
        on_engine!(on_sqlite_file, SqliteFile, $($behaviour)*);
        on_engine!(on_postgres, Postgres, $($behaviour)*);
    };
}

/// Behaviours of SQLite, wherever its data is.
macro_rules! on_sqlite {
    ($($behaviour:ident,)*) => {
        on_engine!(in_sqlite_file, SqliteFile, $($behaviour)*);
        on_engine!(in_sqlite_memory, SqliteMemory, $($behaviour)*);
    };
}

/// Behaviours of SQLite files alone.
macro_rules! on_sqlite_files {
    ($($behaviour:ident,)*) => {
        on_engine!(of_sqlite_file, SqliteFile, $($behaviour)*);
    };
}
