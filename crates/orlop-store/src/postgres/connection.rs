//! Connections and their settings, prepared statements and the shared value cache.

use std::{
    collections::HashMap,
    future::poll_fn,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use tokio_postgres::{Client, Connection, Row, Socket, Statement, types::ToSql};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{
    connection_string::Target,
    db_error::{DbError, connect_error},
    rows::column,
    tls,
    value_cache::ValueCache,
};
use crate::{
    Config, Durability,
    error::Result,
    event::{Commit, VersionId},
    metrics::Metrics,
};

/// Maximum time of one round trip, after which the connection counts as lost. The server's own timeouts are shorter, so
/// this one fires only if the server or the network is gone silently.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(330);

/// The parameters of a statement.
pub(super) type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// The I/O half of a connection, which has to be polled.
pub(super) type Driver =
    Connection<Socket, <MakeRustlsConnect as tokio_postgres::tls::MakeTlsConnect<Socket>>::Stream>;

/// Opens connections to one database.
pub(super) struct Connector {
    target: Target,
    tls: MakeRustlsConnect,
    settings: String,
    value_cache: Arc<ValueCache>,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.target.fmt(f)
    }
}

impl Connector {
    pub(super) fn new(url: &str, config: &Config, metrics: Metrics) -> Result<Self> {
        let target = Target::parse(url)?;
        let tls = tls::connector(&target)?;
        let settings = settings(&target.schema, config.durability);
        let value_cache = Arc::new(ValueCache::new(config.value_cache_bytes, metrics));
        Ok(Self { target, tls, settings, value_cache })
    }

    pub(super) fn schema(&self) -> &str {
        &self.target.schema
    }

    /// Opens a connection without settings, which the caller has to poll.
    pub(super) async fn open(&self) -> Result<(Client, Driver), DbError> {
        let config = self.target.with_password().map_err(DbError::Permanent)?;
        config.connect(self.tls.clone()).await.map_err(connect_error)
    }

    /// Opens a session with its settings.
    pub(super) async fn connect(&self) -> Result<Session, DbError> {
        let (client, driver) = self.open().await?;
        let mut session = Session {
            client,
            driver: Mutex::new(Some(driver)),
            statements: Mutex::default(),
            value_cache: self.value_cache.clone(),
            server: String::new(),
        };
        session.batch_execute(&self.settings).await?;
        // The start time identifies a server and its run.
        let rows = session.query("select pg_postmaster_start_time()::text", &[]).await?;
        session.server = rows.first().map_or(Ok(String::new()), |row| column(row, 0))?;
        self.value_cache.set_server(&session.server);
        Ok(session)
    }

    /// Returns the settings of every session.
    pub(super) fn settings(&self) -> &str {
        &self.settings
    }
}

/// Returns the settings of a session.
///
/// Every statement scans an index in key or id order. On a new table without statistics the planner would choose
/// otherwise and keep that plan, so the other plan types are disabled. The limit on idle transactions frees the write
/// lock from a process that hangs while it holds it.
fn settings(schema: &str, durability: Durability) -> String {
    let commit = match durability {
        // Never weaken what the server is set to (`remote_apply`, say).
        Durability::Full => {
            "select set_config('synchronous_commit', 'on', false) \
             where current_setting('synchronous_commit') = 'off'"
        }
        Durability::Relaxed => "set synchronous_commit = off",
    };
    format!(
        "set search_path to \"{schema}\"; {commit};
         select set_config(name, wanted, false) from pg_settings join (values
             ('statement_timeout', '300s'), ('lock_timeout', '10s'),
             ('idle_in_transaction_session_timeout', '10s'), ('client_min_messages', 'warning'),
             ('default_toast_compression', 'lz4'), ('plan_cache_mode', 'force_generic_plan'), ('jit', 'off'),
             ('enable_seqscan', 'off'), ('enable_bitmapscan', 'off'), ('enable_sort', 'off'),
             ('enable_hashjoin', 'off'), ('enable_mergejoin', 'off'), ('enable_memoize', 'off'),
             ('enable_material', 'off'), ('max_parallel_workers_per_gather', '0')
         ) as ours(name, wanted) using (name) where enumvals is null or wanted = any(enumvals)"
    )
}

/// A connection with its prepared statements.
///
/// It is polled by the caller that waits for a response: a task of its own would cost a thread switch each way, which is
/// more than a small statement takes.
pub(super) struct Session {
    client: Client,
    /// `None` once the connection has ended.
    driver: Mutex<Option<Driver>>,
    statements: Mutex<HashMap<String, Statement>>,
    value_cache: Arc<ValueCache>,
    /// Identity of the server.
    server: String,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("closed", &self.is_closed()).finish_non_exhaustive()
    }
}

impl Session {
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    pub(super) fn value_cache(&self) -> &ValueCache {
        &self.value_cache
    }

    /// Caches values that this session has written or fetched.
    pub(super) fn cache_values<'k>(&self, versions: impl Iterator<Item = (VersionId, &'k Bytes, &'k Bytes)>) {
        self.value_cache.insert(&self.server, versions);
    }

    /// Caches the values of commits of this session.
    pub(super) fn cache_committed(&self, commits: &[Arc<Commit>]) {
        let events = commits.iter().flat_map(|commit| &commit.events).filter(|event| !event.deleted);
        self.cache_values(events.map(|event| (event.id, &event.kv.key, &event.kv.value)));
    }

    /// Runs a request with a timeout. Pin large futures first: each function that they are passed through would reserve
    /// space for them.
    pub(super) async fn run<T, E: Into<DbError>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, DbError> {
        self.run_and(work, || {}).await
    }

    /// As [`Self::run`], and calls `meanwhile` once everything is sent.
    pub(super) async fn run_and<T, E: Into<DbError>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
        meanwhile: impl FnOnce(),
    ) -> Result<T, DbError> {
        match tokio::time::timeout(ROUND_TRIP_MAX, self.poll_with(work, meanwhile)).await {
            Ok(answer) => answer.map_err(Into::into),
            Err(_) => Err(DbError::ConnectionLost("PostgreSQL does not answer".into())),
        }
    }

    /// Runs a request without a timeout.
    pub(super) async fn run_unbounded<T>(&self, work: impl Future<Output = T>) -> T {
        self.poll_with(work, || {}).await
    }

    /// Polls a request together with the connection. Calls `meanwhile` once everything is sent.
    async fn poll_with<T>(&self, work: impl Future<Output = T>, meanwhile: impl FnOnce()) -> T {
        let mut work = pin!(work);
        let mut meanwhile = Some(meanwhile);
        poll_fn(|context| {
            if let Poll::Ready(answer) = work.as_mut().poll(context) {
                return Poll::Ready(answer);
            }
            self.poll_connection(context);
            if let Some(meanwhile) = meanwhile.take() {
                meanwhile();
            }
            work.as_mut().poll(context)
        })
        .await
    }

    /// Sends and receives without blocking.
    fn poll_connection(&self, context: &mut Context<'_>) {
        let mut driver = self.driver.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(connection) = &mut *driver {
            match connection.poll_message(context) {
                // A notice. Notifications arrive on the listener's session.
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(error))) => {
                    tracing::debug!(%error, "PostgreSQL connection ended");
                    *driver = None;
                }
                Poll::Ready(None) => *driver = None,
                Poll::Pending => return,
            }
        }
    }

    /// Prepares a statement, once. Prepare all statements of a pipeline before its first message.
    pub(super) async fn prepare(&self, sql: &str) -> Result<Statement, DbError> {
        let cached = |statements: &Mutex<HashMap<String, Statement>>| {
            statements.lock().unwrap_or_else(PoisonError::into_inner).get(sql).cloned()
        };
        if let Some(statement) = cached(&self.statements) {
            return Ok(statement);
        }
        let statement = Box::pin(self.run(self.client.prepare(sql))).await?;
        let mut statements = self.statements.lock().unwrap_or_else(PoisonError::into_inner);
        statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    /// Runs statements without parameters, and discards their rows.
    pub(super) async fn batch_execute(&self, sql: &str) -> Result<(), DbError> {
        self.run(self.client.batch_execute(sql)).await
    }

    pub(super) async fn query(&self, sql: &str, parameters: Parameters<'_>) -> Result<Vec<Row>, DbError> {
        let statement = self.prepare(sql).await?;
        self.run(self.client.query(&statement, parameters)).await
    }

    pub(super) async fn execute(&self, sql: &str, parameters: Parameters<'_>) -> Result<u64, DbError> {
        let statement = self.prepare(sql).await?;
        self.run(self.client.execute(&statement, parameters)).await
    }
}

/// Exponential back-off, up to a second.
#[derive(Debug)]
pub(super) struct Backoff(Duration);

impl Backoff {
    pub(super) fn new() -> Self {
        Self(Duration::from_millis(5))
    }

    pub(super) async fn wait(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(Duration::from_secs(1));
    }
}
