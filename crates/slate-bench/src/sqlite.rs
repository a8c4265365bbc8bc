//! The same work on SQLite with JSON1 and expression indexes.

use std::{
    path::{Path, PathBuf},
    sync::Mutex,
    time::Duration,
};

use rusqlite::{Connection, params};

use crate::{
    mixed,
    work::{DOCUMENTS, Stopwatch, Subject, Work, document, lookup_ids},
};

/// SQLite, in memory or in a file with the durability of the rocks store.
pub(crate) struct Sqlite {
    path: Option<PathBuf>,
    texts: Vec<String>,
    connection: Connection,
}

impl Sqlite {
    pub(crate) fn new(path: Option<PathBuf>) -> anyhow::Result<Self> {
        let texts = (0..DOCUMENTS)
            .map(|n| bson::Bson::Document(document(n)).into_relaxed_extjson().to_string())
            .collect();
        let connection = open(path.as_deref())?;
        Ok(Self { path, texts, connection })
    }

    /// Runs the mixed load: a connection for each client on a file, a shared one in memory.
    pub(crate) fn mixed(&mut self) -> anyhow::Result<f64> {
        let in_memory = self.path.is_none().then(|| Mutex::new(&mut self.connection));
        let (path, in_memory) = (self.path.as_deref(), in_memory.as_ref());
        mixed::run(|| {
            let own = path.map(|path| open(Some(path))).transpose()?;
            Ok(move |id, write| match (&own, in_memory) {
                (Some(connection), _) => operate(connection, id, write),
                (None, Some(shared)) => {
                    let shared = shared.lock().map_err(|_| anyhow::anyhow!("a client failed"))?;
                    operate(&shared, id, write)
                }
                (None, None) => Ok(()),
            })
        })
    }
}

fn operate(connection: &Connection, id: i32, write: bool) -> anyhow::Result<()> {
    if write {
        let sql =
            "UPDATE docs SET doc = json_set(doc, '$.score', json_extract(doc, '$.score') + 1) WHERE id = ?1";
        connection.prepare_cached(sql)?.execute([id])?;
    } else {
        let mut statement = connection.prepare_cached("SELECT doc FROM docs WHERE id = ?1")?;
        let length = statement.query_row([id], |row| Ok(row.get_ref(0)?.as_bytes()?.len()))?;
        anyhow::ensure!(length > 0);
    }
    Ok(())
}

fn open(path: Option<&Path>) -> anyhow::Result<Connection> {
    let connection = match path {
        Some(path) => Connection::open(path)?,
        None => Connection::open_in_memory()?,
    };
    connection.busy_timeout(Duration::from_secs(60))?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -131072;",
    )?;
    Ok(connection)
}

impl Subject for Sqlite {
    fn insert(&mut self) -> anyhow::Result<f64> {
        self.connection.execute_batch(
            "DROP TABLE IF EXISTS docs;
             CREATE TABLE docs (id INTEGER PRIMARY KEY, doc TEXT NOT NULL);
             CREATE INDEX by_status ON docs (json_extract(doc, '$.status'));
             CREATE INDEX by_score ON docs (json_extract(doc, '$.score'));",
        )?;
        let began = Stopwatch::start();
        let transaction = self.connection.transaction()?;
        {
            let mut statement = transaction.prepare("INSERT INTO docs VALUES (?1, ?2)")?;
            for (id, text) in self.texts.iter().enumerate() {
                statement.execute(params![id as i64, text])?;
            }
        }
        transaction.commit()?;
        Ok(began.milliseconds())
    }

    fn read(&mut self, work: Work) -> anyhow::Result<usize> {
        let sql = match work {
            Work::Scan => "SELECT doc FROM docs",
            Work::Equality => "SELECT doc FROM docs WHERE json_extract(doc, '$.status') = 'active'",
            Work::Conjunction => {
                "SELECT doc FROM docs WHERE json_extract(doc, '$.status') = 'active'
                 AND json_extract(doc, '$.score') = 42 AND json_extract(doc, '$.region') = 'r8'"
            }
            Work::Sorted => "SELECT doc FROM docs ORDER BY json_extract(doc, '$.score') DESC LIMIT 200",
            Work::Lookups => {
                let mut statement = self.connection.prepare_cached("SELECT doc FROM docs WHERE id = ?1")?;
                let mut found = 0;
                for id in lookup_ids() {
                    let length = statement.query_row([id], |row| Ok(row.get_ref(0)?.as_bytes()?.len()))?;
                    found += usize::from(length > 0);
                }
                return Ok(found);
            }
        };
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query([])?;
        let (mut count, mut bytes) = (0, 0);
        while let Some(row) = rows.next()? {
            bytes += row.get_ref(0)?.as_bytes()?.len();
            count += 1;
        }
        anyhow::ensure!(bytes > 0);
        Ok(count)
    }
}
