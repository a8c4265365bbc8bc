//! Tables and their migrations.
//!
//! `log` holds the values of all versions, once. `live` has narrow rows with the version of each key, and `history` is a
//! sparse index of superseded versions (`history.rs`). So a count, a list of keys or a compare reads no value, and a
//! write moves none. `state` is one row of compaction marks and the epoch's owner. The view `head` is the end of the
//! log, whose newest version is never compacted.

use super::{
    connection::{Backoff, Connector, Session},
    db_error::DbError,
    lock_key::lock_key,
    requirements,
};
use crate::error::{Error, Result};

/// Migrations by schema version. Released entries never change.
const MIGRATIONS: [&str; 5] = [
    r#"
create table state (
    only_row boolean primary key default true check (only_row),
    revision bigint not null,
    last_id bigint not null,
    compacted bigint not null,
    -- The last version, by id, that compaction has looked at.
    compacted_done bigint not null
) with (fillfactor = 10);
insert into state (revision, last_id, compacted, compacted_done) values (1, 0, 0, 0);

create table log (
    id bigint primary key,
    revision bigint not null,
    key bytea not null,
    create_revision bigint not null,
    -- 0 is a deletion.
    version bigint not null,
    lease bigint not null,
    -- The version this one supersedes.
    previous bigint,
    terms bytea not null,
    value bytea not null,
    checksum bigint not null
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.1);
create index log_revision on log (revision, id);

create table live (
    key bytea primary key,
    id bigint not null,
    revision bigint not null,
    create_revision bigint not null,
    version bigint not null,
    lease bigint not null,
    terms bytea not null
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
create index live_lease on live (lease, key) where lease <> 0;

create table history (
    key bytea not null,
    superseded_at bigint not null,
    id bigint not null,
    revision bigint not null,
    create_revision bigint not null,
    version bigint not null,
    lease bigint not null,
    primary key (key, superseded_at)
) with (autovacuum_vacuum_scale_factor = 0.05);

create table terms (
    -- UTF-8, but as bytes: PostgreSQL's text has no place for a zero byte.
    field bytea not null,
    value bytea not null,
    key bytea not null,
    primary key (field, value, key)
);

create table lease (
    id bigint primary key,
    ttl_seconds bigint not null,
    deadline_ms bigint not null
);
create index lease_deadline on lease (deadline_ms);

create table note (name text primary key, text text not null);

-- The last batch that each process has committed: how it learns what became of a commit it lost sight of.
create table writer (
    process text primary key,
    batch bigint not null,
    seen timestamptz not null
) with (fillfactor = 50);
"#,
    // Bytes of the versions in the log: the database's own size does not shrink with compaction.
    "
alter table state add column bytes bigint not null default 0;
update state set bytes = (select coalesce(sum(octet_length(key) + octet_length(value) + 200), 0) from log);
",
    // The last batch, in the row that every batch changes anyway; `writer` is for earlier processes. A counter of
    // listening sessions: a batch notifies only if there are any. The log is searched by id (`tail.rs`).
    "
alter table state add column process text not null default '', add column batch bigint not null default 0,
    add column joined bigint not null default 0;
drop index log_revision;
",
    // `history` is sparse from here on (`history.rs`). Existing rows do no harm, but a program that expects every
    // superseded version there must not read it.
    "",
    // Writer epochs (`speculation`), named `turn` here, so that no batch has to update the row of `state`. The log alone
    // has the newest revision and its size, and `writer` the end of each process's last epoch.
    "
create sequence turn;
alter table log add column written bigint not null default 0;
alter table state drop column revision, drop column last_id, drop column joined,
    add column turn bigint not null default 0;
alter table writer add column turn bigint not null default 0, add column last_id bigint not null default 0;
create view head as
    select coalesce(newest.revision, 1) as revision, coalesce(newest.id, 0) as last_id,
        coalesce(newest.written, 0) as written, state.bytes + coalesce(newest.written, 0) as bytes, state.compacted
    from state left join lateral (select id, revision, written from log order by id desc limit 1) newest on true;
",
];

/// Estimated size of a version besides its key and value, in all tables and indexes.
pub(super) const VERSION_BYTES: i64 = 200;

/// Class of the advisory lock; the other half of its key is the schema's.
const MIGRATION_LOCK: i32 = i32::from_be_bytes(*b"orlm");

/// Checks the server and migrates the database to this program's schema version. Waits for a server that is starting.
pub(super) async fn migrate(connector: &Connector, timeout: std::time::Duration) -> Result<()> {
    let deadline = tokio::time::Instant::now() + timeout;
    let mut backoff = Backoff::new();
    loop {
        let attempt = async {
            let session = connector.connect().await?;
            requirements::check(&session, connector.schema()).await?;
            migrate_once(connector.schema(), &session).await
        };
        match attempt.await {
            Ok(()) => return Ok(()),
            Err(error) if error.is_transient() && tokio::time::Instant::now() < deadline => {
                backoff.wait().await;
            }
            Err(error) => return Err(error.into_error()),
        }
    }
}

async fn migrate_once(schema: &str, session: &Session) -> Result<(), DbError> {
    let known = MIGRATIONS.len() as i64;
    // Without a lock if there is nothing to do.
    if found_version(schema, session).await? == Some(known) {
        return Ok(());
    }
    session.batch_execute("begin").await?;
    session.execute("select pg_advisory_xact_lock($1, $2)", &[&MIGRATION_LOCK, &lock_key(schema)]).await?;
    let found = found_version(schema, session).await?;
    let done = match found {
        Some(found) if found > known || found < 0 => {
            return Err(DbError::Permanent(Error::NewerSchema { found, known }));
        }
        Some(found) => found as usize,
        None => 0,
    };
    if found.is_none() {
        session
            .batch_execute(&format!(
                "create schema if not exists \"{schema}\";
                 create table \"{schema}\".schema_version (version bigint not null);
                 insert into \"{schema}\".schema_version values (0)"
            ))
            .await?;
    }
    for migration in MIGRATIONS.iter().skip(done) {
        session.batch_execute(migration).await?;
    }
    session.batch_execute(&format!("update schema_version set version = {known}; commit")).await
}

/// Returns the schema version of the database; `None` if it has none of our tables.
async fn found_version(schema: &str, session: &Session) -> Result<Option<i64>, DbError> {
    // Reads the catalogue. `to_regclass` uses a cache that may not have seen yet what another process did while this one
    // waited for the lock.
    let known =
        "select exists (select from pg_tables where schemaname = $1 and tablename = 'schema_version')";
    let rows = session.query(known, &[&schema]).await?;
    if !rows.first().is_some_and(|row| row.get(0)) {
        return Ok(None);
    }
    let rows = session.query(&format!("select version from \"{schema}\".schema_version"), &[]).await?;
    Ok(Some(rows.first().map_or(0, |row| row.get(0))))
}
