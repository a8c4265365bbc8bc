//! Connections: how they are made, what they are set to, and what they keep.

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
    fault::{Fault, not_connected},
    rows::column,
    tls,
    undisturbed::undisturbed,
    url::Target,
    values::Values,
};
use crate::{
    Config, Durability,
    error::Result,
    event::{Commit, VersionId},
    metrics::Metrics,
};

/// How long one round trip may take before the connection counts as lost. The server's own limits are
/// shorter, so this is only met when the server or the network is gone without a word.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(330);

/// The parameters of a statement.
pub(super) type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A connection that nobody drives yet.
pub(super) type Wire =
    Connection<Socket, <MakeRustlsConnect as tokio_postgres::tls::MakeTlsConnect<Socket>>::Stream>;

/// Makes connections to one database.
pub(super) struct Connector {
    target: Target,
    tls: MakeRustlsConnect,
    settings: String,
    values: Arc<Values>,
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
        Ok(Self { target, tls, settings, values: Arc::new(Values::new(config.value_cache_bytes, metrics)) })
    }

    pub(super) fn schema(&self) -> &str {
        &self.target.schema
    }

    /// Connects, without anybody driving the connection.
    pub(super) async fn dial(&self) -> Result<(Client, Wire), Fault> {
        let config = self.target.with_password().map_err(Fault::Final)?;
        config.connect(self.tls.clone()).await.map_err(not_connected)
    }

    /// Connects and sets the session up.
    pub(super) async fn connect(&self) -> Result<Session, Fault> {
        let (client, wire) = self.dial().await?;
        let mut session = Session {
            client,
            wire: Mutex::new(Some(wire)),
            statements: Mutex::default(),
            values: self.values.clone(),
            server: String::new(),
        };
        session.simple(&self.settings).await?;
        // No two servers have started at the same moment, nor one twice.
        let rows = session.query("select pg_postmaster_start_time()::text", &[]).await?;
        session.server = rows.first().map_or(Ok(String::new()), |row| column(row, 0))?;
        self.values.only_from(&session.server);
        Ok(session)
    }

    /// What every session is set to.
    pub(super) fn settings(&self) -> &str {
        &self.settings
    }
}

/// Every plan of ours walks an index in key or id order. On a new table without statistics the planner would
/// guess otherwise and keep that guess, so the choice is taken away from it. A limit on idle transactions
/// frees the lock from a process that hangs while it holds it.
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

/// A connection with the statements it has prepared.
///
/// Nobody drives the connection but whoever waits for an answer on it: a task of its own would cost a hop
/// between threads each way, which is more than a small statement takes.
pub(super) struct Session {
    client: Client,
    /// `None` once it has ended.
    wire: Mutex<Option<Wire>>,
    statements: Mutex<HashMap<String, Statement>>,
    values: Arc<Values>,
    /// Which server it leads to.
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

    /// Values that need not be asked for.
    pub(super) fn values(&self) -> &Values {
        &self.values
    }

    /// Keeps values that this session has written or fetched.
    pub(super) fn keep<'k>(&self, versions: impl Iterator<Item = (VersionId, &'k Bytes, &'k Bytes)>) {
        self.values.put(&self.server, versions);
    }

    /// Keeps the values of what this session has committed.
    pub(super) fn keep_committed(&self, commits: &[Arc<Commit>]) {
        let events = commits.iter().flat_map(|commit| &commit.events).filter(|event| !event.deleted);
        self.keep(events.map(|event| (event.id, &event.kv.key, &event.kv.value)));
    }

    /// Waits for what the server is asked for, but not for ever. Pin it first where that matters: each function that it
    /// is handed down through would make room for it twice.
    pub(super) async fn run<T, E: Into<Fault>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Fault> {
        self.run_while(work, || {}).await
    }

    /// The same. Once everything is sent, there is time for something else.
    pub(super) async fn run_while<T, E: Into<Fault>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
        something_else: impl FnOnce(),
    ) -> Result<T, Fault> {
        match tokio::time::timeout(ROUND_TRIP_MAX, self.driven_while(work, something_else)).await {
            Ok(answer) => answer.map_err(Into::into),
            Err(_) => Err(Fault::Lost("PostgreSQL does not answer".into())),
        }
    }

    /// Waits for what the server is asked for, and drives the connection meanwhile.
    pub(super) async fn driven<T>(&self, work: impl Future<Output = T>) -> T {
        self.driven_while(work, || {}).await
    }

    /// The same. Once everything is sent, there is time for something else.
    pub(super) async fn driven_while<T>(
        &self,
        work: impl Future<Output = T>,
        something_else: impl FnOnce(),
    ) -> T {
        let mut work = pin!(work);
        let mut something_else = Some(something_else);
        undisturbed(poll_fn(|context| {
            if let Poll::Ready(answer) = work.as_mut().poll(context) {
                return Poll::Ready(answer);
            }
            self.drive(context);
            if let Some(something_else) = something_else.take() {
                something_else();
            }
            work.as_mut().poll(context)
        }))
        .await
    }

    /// Sends what is to be sent and takes what has come.
    fn drive(&self, context: &mut Context<'_>) {
        let mut wire = self.wire.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(driven) = &mut *wire {
            match driven.poll_message(context) {
                // A notice; what is notified comes elsewhere.
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(error))) => {
                    tracing::debug!(%error, "PostgreSQL connection ended");
                    *wire = None;
                }
                Poll::Ready(None) => *wire = None,
                Poll::Pending => return,
            }
        }
    }

    /// The prepared form of a statement. Prepare everything a pipeline needs before its first message.
    pub(super) async fn prepare(&self, sql: &str) -> Result<Statement, Fault> {
        let known = |statements: &Mutex<HashMap<String, Statement>>| {
            statements.lock().unwrap_or_else(PoisonError::into_inner).get(sql).cloned()
        };
        if let Some(statement) = known(&self.statements) {
            return Ok(statement);
        }
        let statement = Box::pin(self.run(self.client.prepare(sql))).await?;
        let mut statements = self.statements.lock().unwrap_or_else(PoisonError::into_inner);
        statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    /// Statements without parameters, whose rows do not matter.
    pub(super) async fn simple(&self, sql: &str) -> Result<(), Fault> {
        self.run(self.client.batch_execute(sql)).await
    }

    pub(super) async fn query(&self, sql: &str, parameters: Parameters<'_>) -> Result<Vec<Row>, Fault> {
        let statement = self.prepare(sql).await?;
        self.run(self.client.query(&statement, parameters)).await
    }

    pub(super) async fn execute(&self, sql: &str, parameters: Parameters<'_>) -> Result<u64, Fault> {
        let statement = self.prepare(sql).await?;
        self.run(self.client.execute(&statement, parameters)).await
    }
}

/// Waits longer each time, up to a second.
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
