//! The baseline on PostgreSQL: kine's table and the shape of its statements, over as many connections as there
//! are clients. It is flattered: nobody polls, fills gaps or compacts.

use tokio_postgres::{Client, NoTls, Statement};

const SCHEMA: &str = r#"
CREATE TABLE kine (
    id BIGSERIAL PRIMARY KEY, name TEXT COLLATE "C", created INTEGER, deleted INTEGER,
    create_revision BIGINT, prev_revision BIGINT, lease INTEGER, value BYTEA, old_value BYTEA);
CREATE INDEX kine_name_index ON kine (name);
CREATE INDEX kine_name_id_index ON kine (name, id);
CREATE INDEX kine_id_deleted_index ON kine (id, deleted);
CREATE INDEX kine_prev_revision_index ON kine (prev_revision);
CREATE UNIQUE INDEX kine_name_prev_revision_uindex ON kine (name, prev_revision);
CREATE TABLE one (id BIGSERIAL PRIMARY KEY, value BYTEA);
"#;

const LIST: &str = "
SELECT (SELECT MAX(rkv.id) FROM kine AS rkv),
       (SELECT MAX(crkv.prev_revision) FROM kine AS crkv WHERE crkv.name = 'compact_rev_key'),
       kv.id, kv.name, kv.created, kv.deleted, kv.create_revision, kv.prev_revision, kv.lease, kv.value
FROM kine AS kv
JOIN (SELECT MAX(mkv.id) AS id FROM kine AS mkv WHERE mkv.name >= $1 AND mkv.name < $2 GROUP BY mkv.name) AS maxkv
  ON maxkv.id = kv.id
WHERE kv.deleted = 0 ORDER BY kv.name ASC LIMIT $3";

const INSERT: &str = "
INSERT INTO kine (name, created, deleted, create_revision, prev_revision, lease, value, old_value)
VALUES ($1, $2, 0, $3, $4, 0, $5, NULL) RETURNING id";

/// One connection of a kine-shaped store.
#[derive(Debug)]
pub(crate) struct Kine {
    client: Client,
    list: Statement,
    insert: Statement,
    one: Statement,
}

impl Kine {
    /// Makes the tables.
    pub(crate) async fn create(url: &str) -> anyhow::Result<()> {
        Ok(connect(url).await?.batch_execute(SCHEMA).await?)
    }

    /// Has PostgreSQL learn what is in the table, as autovacuum would.
    pub(crate) async fn settle(&self) -> anyhow::Result<()> {
        Ok(self.client.batch_execute("ANALYZE kine").await?)
    }

    /// Connects.
    pub(crate) async fn open(url: &str) -> anyhow::Result<Self> {
        let client = connect(url).await?;
        Ok(Self {
            list: client.prepare(LIST).await?,
            insert: client.prepare(INSERT).await?,
            one: client.prepare("INSERT INTO one (value) VALUES ($1)").await?,
            client,
        })
    }

    /// Writes a key: reads what is there, then inserts.
    pub(crate) async fn put(&self, key: &str, value: &[u8]) -> anyhow::Result<()> {
        let end = format!("{key}!");
        let row = self.client.query_opt(&self.list, &[&key, &end, &1_i64]).await?;
        let (previous, created) =
            row.map_or((0_i64, 0_i64), |row| (row.get(2), row.get::<_, Option<i64>>(6).unwrap_or(0)));
        let new = i32::from(previous == 0);
        self.client.query_one(&self.insert, &[&key, &new, &created, &previous, &value]).await?;
        Ok(())
    }

    /// Reads a range; how many bytes came.
    pub(crate) async fn list(&self, start: &str, end: &str, limit: i64) -> anyhow::Result<usize> {
        let rows = self.client.query(&self.list, &[&start, &end, &limit]).await?;
        let kept: Vec<(String, Vec<u8>)> = rows.iter().map(|row| (row.get(3), row.get(9))).collect();
        Ok(kept.iter().map(|(key, value)| key.len() + value.len()).sum())
    }

    /// The least a durable write can cost: one row into one table, committed.
    pub(crate) async fn one_row(&self, value: &[u8]) -> anyhow::Result<()> {
        self.client.execute(&self.one, &[&value]).await?;
        Ok(())
    }
}

async fn connect(url: &str) -> anyhow::Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}
