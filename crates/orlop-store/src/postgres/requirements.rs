//! Checks at start that the server provides what the engine relies on.
//!
//! Servers that speak PostgreSQL's protocol differ in what they implement. Some accept `pg_advisory_lock` and lock
//! nothing, which would corrupt the order of revisions, so behaviour is checked, not names. A proxy that pools
//! transactions gives each one another session, and fails the same checks.

use tokio_postgres::error::SqlState;

use super::{connection::Session, db_error::DbError, lock_key::lock_key};
use crate::error::Error;

/// The oldest supported version: 12 is the first whose `with` queries honour `materialized`.
const SERVER_VERSION_MIN: i32 = 120_000;

const PROBE_LOCK: i32 = i32::from_be_bytes(*b"orlp");

/// Fails with a permanent error that names what is missing.
pub(super) async fn check(session: &Session, schema: &str) -> Result<(), DbError> {
    let version =
        query(session, "version numbers", "select current_setting('server_version_num')::int").await?;
    if version.is_none_or(|version| version < SERVER_VERSION_MIN) {
        return Err(missing("PostgreSQL 12 or later", "the server is older"));
    }
    // Session-level: the lock has to be there in the next transaction, on the same backend.
    let locked = "select count(*)::int from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()
        and classid = $1 and objid = $2 and objsubid = 2 and granted";
    let key = lock_key(schema);
    let [class, object] = [PROBE_LOCK.cast_unsigned(), key.cast_unsigned()];
    let take = format!("select pg_advisory_lock_shared({PROBE_LOCK}, {key})");
    run(session, ADVISORY_LOCKS, &take).await?;
    let held =
        session.query(locked, &[&class, &object]).await.map_err(|error| named(ADVISORY_LOCKS, error))?;
    if held.first().and_then(|row| row.try_get::<_, i32>(0).ok()) != Some(1) {
        return Err(missing(ADVISORY_LOCKS, "a lock that was granted is not held"));
    }
    run(session, ADVISORY_LOCKS, &format!("select pg_advisory_unlock_shared({PROBE_LOCK}, {key})")).await?;
    run(
        session,
        "LISTEN and NOTIFY",
        "listen orlop_probe; unlisten orlop_probe; select pg_notify('orlop_probe', '')",
    )
    .await?;
    check_sequences(session).await
}

/// Checks that a sequence keeps its value when the transaction is rolled back; writer epochs depend on that.
async fn check_sequences(session: &Session) -> Result<(), DbError> {
    let created = session.batch_execute("create temporary sequence orlop_probe").await;
    if let Err(DbError::Permanent(Error::Unavailable(reason))) = &created
        && reason.contains(SqlState::INSUFFICIENT_PRIVILEGE.code())
    {
        // A role without temporary objects says nothing about the server.
        return Ok(());
    }
    created.map_err(|error| named(SEQUENCES, error))?;
    run(session, SEQUENCES, "begin; select setval('orlop_probe', 7); rollback").await?;
    let value = query(session, SEQUENCES, "select pg_sequence_last_value('orlop_probe')::int").await?;
    if value != Some(7) {
        return Err(missing(SEQUENCES, "setval was rolled back"));
    }
    run(session, SEQUENCES, "drop sequence orlop_probe").await
}

const ADVISORY_LOCKS: &str = "session-level advisory locks";
const SEQUENCES: &str = "non-transactional sequences";

async fn run(session: &Session, feature: &str, sql: &str) -> Result<(), DbError> {
    session.batch_execute(sql).await.map_err(|error| named(feature, error))
}

async fn query(session: &Session, feature: &str, sql: &str) -> Result<Option<i32>, DbError> {
    let rows = session.query(sql, &[]).await.map_err(|error| named(feature, error))?;
    Ok(rows.first().and_then(|row| row.try_get(0).ok()))
}

/// Names the feature behind an error of the server. Lost connections and full disks stay what they are.
fn named(feature: &str, error: DbError) -> DbError {
    match error {
        DbError::Permanent(Error::Unavailable(reason)) => missing(feature, &reason),
        // `from_server` takes "feature not supported" for a standby.
        DbError::ConnectionLost(reason) if reason.contains(SqlState::FEATURE_NOT_SUPPORTED.code()) => {
            missing(feature, &reason)
        }
        error => error,
    }
}

fn missing(feature: &str, reason: &str) -> DbError {
    DbError::Permanent(Error::Unavailable(format!(
        "this PostgreSQL-compatible server does not provide {feature}, which orlop relies on: {reason}"
    )))
}
