//! The tables, and how a database gets them.
//!
//! The values of all versions are in `log`, once; `live` has narrow rows that say which version a key has, and
//! `history` such rows of some of the versions that keys had (`past.rs`). So a count, a list of keys or a compare
//! never touches a value, and a write moves no value. `state` is one row of marks, and `head` says where the log ends:
//! its newest version is never compacted away.

use super::{
    connect::{Backoff, Connector, Session},
    fault::Fault,
};
use crate::error::{Error, Result};

/// Each entry takes the schema from its index to the next version. Entries are never changed once released.
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
    // What the versions in the log take: the database's own size says what they once took.
    "
alter table state add column bytes bigint not null default 0;
update state set bytes = (select coalesce(sum(octet_length(key) + octet_length(value) + 200), 0) from log);
",
    // The last batch, in the row that every batch changes anyway: `writer` is for processes that were not the last.
    // And how many sessions have ever begun to listen: a batch tells the others only if there are any. The log is
    // searched by id (`tail.rs`).
    "
alter table state add column process text not null default '', add column batch bigint not null default 0,
    add column joined bigint not null default 0;
drop index log_revision;
",
    // History has only milestones from here on (`past.rs`). What it has already does no harm, but a program that
    // expects every superseded version there must not read it.
    "",
    // Writers take turns (`turn.rs`), so that no batch has to change the state's row: the log alone says how far it is
    // and what it took, and `writer` how each process's last turn ended.
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

/// What a version takes besides its key and value, in all tables and indexes, about.
pub(super) const VERSION_BYTES: i64 = 200;

/// Classes of advisory locks; the other half of a lock's name is the schema's.
const MIGRATION_LOCK: i32 = i32::from_be_bytes(*b"orlm");

/// The schema as the second half of an advisory lock's name.
pub(super) fn lock_number(schema: &str) -> i32 {
    crc32fast::hash(schema.as_bytes()).cast_signed()
}

/// Brings the database to this program's schema version, waiting a little for a server that is starting.
pub(super) async fn migrate(connector: &Connector, patience: std::time::Duration) -> Result<()> {
    let deadline = tokio::time::Instant::now() + patience;
    let mut backoff = Backoff::new();
    loop {
        let attempt = async { migrate_once(connector.schema(), &connector.connect().await?).await };
        match attempt.await {
            Ok(()) => return Ok(()),
            Err(fault) if fault.passes() && tokio::time::Instant::now() < deadline => backoff.wait().await,
            Err(fault) => return Err(fault.given_up()),
        }
    }
}

async fn migrate_once(schema: &str, session: &Session) -> Result<(), Fault> {
    let known = MIGRATIONS.len() as i64;
    // Nothing is locked when there is nothing to do.
    if found(schema, session).await? == Some(known) {
        return Ok(());
    }
    session.simple("begin").await?;
    session.execute("select pg_advisory_xact_lock($1, $2)", &[&MIGRATION_LOCK, &lock_number(schema)]).await?;
    let found = found(schema, session).await?;
    let done = match found {
        Some(found) if found > known || found < 0 => {
            return Err(Fault::Final(Error::NewerSchema { found, known }));
        }
        Some(found) => found as usize,
        None => 0,
    };
    if found.is_none() {
        session
            .simple(&format!(
                "create schema if not exists \"{schema}\";
                 create table \"{schema}\".schema_version (version bigint not null);
                 insert into \"{schema}\".schema_version values (0)"
            ))
            .await?;
    }
    for migration in MIGRATIONS.iter().skip(done) {
        session.simple(migration).await?;
    }
    session.simple(&format!("update schema_version set version = {known}; commit")).await
}

/// The schema version of the database; `None` if it has none of our tables.
async fn found(schema: &str, session: &Session) -> Result<Option<i64>, Fault> {
    // A look at the catalogue's rows. `to_regclass` would answer from a cache that may not have heard yet of
    // what another process did while this one waited for its lock.
    let known =
        "select exists (select from pg_tables where schemaname = $1 and tablename = 'schema_version')";
    let rows = session.query(known, &[&schema]).await?;
    if !rows.first().is_some_and(|row| row.get(0)) {
        return Ok(None);
    }
    let rows = session.query(&format!("select version from \"{schema}\".schema_version"), &[]).await?;
    Ok(Some(rows.first().map_or(0, |row| row.get(0))))
}
