//! The same work on SQLite with JSON1.

use std::path::Path;

use rusqlite::{Connection, params};

use crate::{DOCUMENTS, conjunction_matches, document, fastest, lookup_ids};

/// Milliseconds of each piece of work.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) insert: f64,
    pub(crate) scan: f64,
    pub(crate) equality: f64,
    pub(crate) conjunction: f64,
    pub(crate) sorted: f64,
    pub(crate) lookups: f64,
}

pub(crate) fn measure(path: Option<&Path>) -> anyhow::Result<Peer> {
    let mut connection = match path {
        Some(path) => Connection::open(path)?,
        None => Connection::open_in_memory()?,
    };
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -131072;
         CREATE TABLE docs (id INTEGER PRIMARY KEY, doc TEXT NOT NULL);
         CREATE INDEX by_status ON docs (json_extract(doc, '$.status'));
         CREATE INDEX by_score ON docs (json_extract(doc, '$.score'));",
    )?;
    let texts: Vec<String> = (0..DOCUMENTS)
        .map(|n| bson::Bson::Document(document(n)).into_relaxed_extjson().to_string())
        .collect();
    let insert = fastest(1, || {
        let transaction = connection.transaction()?;
        {
            let mut statement = transaction.prepare("INSERT INTO docs VALUES (?1, ?2)")?;
            for (id, text) in texts.iter().enumerate() {
                statement.execute(params![id as i64, text])?;
            }
        }
        Ok(transaction.commit()?)
    })?;
    let all = |sql: &str, expected: usize| {
        fastest(3, || {
            let mut statement = connection.prepare_cached(sql)?;
            let mut rows = statement.query([])?;
            let (mut count, mut bytes) = (0, 0);
            while let Some(row) = rows.next()? {
                bytes += row.get_ref(0)?.as_str()?.len();
                count += 1;
            }
            anyhow::ensure!(count == expected && bytes > 0, "{sql}: {count} rows");
            Ok(())
        })
    };
    let half = DOCUMENTS as usize / 2;
    Ok(Peer {
        insert,
        scan: all("SELECT doc FROM docs", DOCUMENTS as usize)?,
        equality: all("SELECT doc FROM docs WHERE json_extract(doc, '$.status') = 'active'", half)?,
        conjunction: all(
            "SELECT doc FROM docs WHERE json_extract(doc, '$.status') = 'active'
             AND json_extract(doc, '$.score') = 42 AND json_extract(doc, '$.region') = 'r8'",
            conjunction_matches(),
        )?,
        sorted: all("SELECT doc FROM docs ORDER BY json_extract(doc, '$.score') DESC LIMIT 200", 200)?,
        lookups: fastest(3, || {
            let mut statement = connection.prepare_cached("SELECT doc FROM docs WHERE id = ?1")?;
            for id in lookup_ids() {
                let length = statement.query_row([id], |row| Ok(row.get_ref(0)?.as_str()?.len()))?;
                anyhow::ensure!(length > 0);
            }
            Ok(())
        })?,
    })
}
