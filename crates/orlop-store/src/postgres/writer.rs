//! Commits batches: in one round trip speculatively, or in two under the exclusive lock.
//!
//! Most batches are written speculatively (`speculation`). Otherwise the first round trip begins a transaction, takes the
//! write lock and fetches the rows that the batch names. The batch is evaluated here. The second round trip writes
//! everything, notifies other processes and commits.
//!
//! Either way the write lock is held until the commit. So batches of all processes are serialized: each sees all of the
//! one before, and revisions have no gaps.
//!
//! If the connection is lost during a commit, the outcome is ambiguous. It is resolved on a new connection, before any
//! caller is answered: see point 7 of the argument in `speculation`.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::{try_join3, try_join4};
use tokio::sync::Mutex;
use tokio_postgres::Statement;

use super::{
    changes::{Changes, CommitError},
    connection::{Backoff, Connector, Session},
    db_error::DbError,
    live::META_COLUMNS,
    rows::column,
    speculation::{
        CURRENT_EPOCH, Epoch, Listeners, LockedWrite, LogEnd, START_EPOCH, Speculation, WriteLock,
    },
    view::{FetchedView, LEASES, NamedRows},
};
use crate::{
    Config, Limits,
    engine::{Command, CommittedBatch, Outcome},
    error::{Error, Result},
    evaluate::{Evaluation, ViewError, random_lease_id},
    event::VersionId,
    metrics::Metrics,
};

/// Time of retries before a batch fails with `Unavailable`. Resolving an ambiguous commit has no limit.
const RETRY_TIME: Duration = Duration::from_secs(10);
/// Deletes the records of processes that are gone. A process that still has to resolve a commit is younger.
const DELETE_OLD_WRITERS: &str = "delete from writer where seen < now() - interval '7 days'";

/// Selects how far an epoch of a process got. The lock must be held exclusively.
const EPOCH_END: &str = "
    select last_id, batch from (
        select process, turn, (select last_id from head) as last_id, batch from state
        union all select process, turn, last_id, batch from writer
    ) epochs where process = $1 and turn = $2";
const NAMED_VALUES: &str = "
    select v.id, v.key, v.value, v.checksum from live l join log v on v.id = l.id where l.key = any($1)";

/// The writer of one process, with its connection.
#[derive(Debug)]
pub(super) struct Writer {
    connector: Arc<Connector>,
    limits: Limits,
    metrics: Metrics,
    /// Identifies this process among the writers of the database.
    process: String,
    lock: WriteLock,
    epoch_check: String,
    listeners: Arc<Listeners>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Taken while a batch is under way, put back when it is known to be between transactions.
    session: Option<Box<WriteSession>>,
    /// Number of the last batch.
    batch: i64,
    speculation: Speculation,
}

/// A session with prepared statements.
#[derive(Debug)]
struct WriteSession {
    session: Session,
    lock: Statement,
    log_end: Statement,
    keys: Statement,
    values: Statement,
    leases: Statement,
}

/// Outcome of one attempt.
enum Attempt {
    Committed(CommittedBatch),
    /// Nothing was written.
    Failed(DbError),
    /// The connection was lost during the commit.
    Ambiguous(CommittedBatch, Evidence, DbError),
}

/// Evidence in the database that a batch was committed.
#[derive(Clone, Copy, Debug)]
struct Evidence {
    epoch: Epoch,
    kind: EvidenceKind,
}

#[derive(Clone, Copy, Debug)]
enum EvidenceKind {
    /// The epoch's last batch under the exclusive lock has this number.
    Batch(i64),
    /// The epoch has versions after this one.
    VersionsAfter(VersionId),
}

impl CommitError {
    fn attempt(self, batch: CommittedBatch, evidence: Evidence) -> Attempt {
        match self {
            // An error response means that the server has rolled back.
            Self { sent: true, error: error @ DbError::ConnectionLost(_) } => {
                Attempt::Ambiguous(batch, evidence, error)
            }
            Self { error, .. } => Attempt::Failed(error),
        }
    }
}

impl Writer {
    pub(super) fn new(
        connector: Arc<Connector>,
        listeners: Arc<Listeners>,
        config: &Config,
        metrics: Metrics,
    ) -> Self {
        let lock = WriteLock::new(connector.schema());
        // Two ids are 126 unpredictable bits.
        let process = format!("{:016x}{:016x}", random_lease_id(), random_lease_id());
        let speculation = Speculation::new(config.speculative_writes);
        let state = Mutex::new(State { session: None, batch: 0, speculation });
        let epoch_check = lock.shared_epoch_check();
        let limits = config.limits.clone();
        Self { connector, limits, metrics, process, lock, epoch_check, listeners, state }
    }

    pub(super) async fn commit(&self, batch: &[Command], full: bool) -> Result<CommittedBatch> {
        let mut state = self.state.lock().await;
        state.batch += 1;
        let number = state.batch;
        let started = Instant::now();
        let mut backoff = Backoff::new();
        loop {
            let error = match self.session(&mut state).await {
                Err(error) => error,
                Ok((session, fresh)) => {
                    match self.attempt(&mut state.speculation, &session, batch, number, full).await {
                        Attempt::Committed(committed) => {
                            state.session = Some(session);
                            return Ok(committed);
                        }
                        Attempt::Failed(error) => {
                            if !fresh && error.is_transient() {
                                // The session was lost while it was idle: no back-off.
                                backoff = Backoff::new();
                            }
                            error
                        }
                        Attempt::Ambiguous(committed, evidence, error) => {
                            drop(session);
                            state.speculation.reset();
                            let (session, found) = Box::pin(self.resolve(evidence, &error)).await;
                            state.session = Some(session);
                            if found {
                                return Ok(committed);
                            }
                            error
                        }
                    }
                }
            };
            if !error.is_transient() || started.elapsed() >= RETRY_TIME {
                return Err(error.into_error());
            }
            self.metrics.insert_error(true);
            backoff.wait().await;
        }
    }

    /// Takes the session, or opens one. Returns whether it is new.
    async fn session(&self, state: &mut State) -> Result<(Box<WriteSession>, bool), DbError> {
        match state.session.take() {
            Some(session) if !session.session.is_closed() => Ok((session, false)),
            _ => {
                state.speculation.end_epoch();
                Ok((Box::pin(self.connect()).await?, true))
            }
        }
    }

    async fn connect(&self) -> Result<Box<WriteSession>, DbError> {
        let session = self.connector.connect().await?;
        session.batch_execute(DELETE_OLD_WRITERS).await?;
        let backend = session.query("select pg_backend_pid()", &[]).await?;
        self.listeners.set_own_writer(backend.first().map_or(Ok(0), |row| column(row, 0))?);
        Ok(Box::new(WriteSession {
            lock: session.prepare(&self.lock.lock_exclusive()).await?,
            log_end: session.prepare(&select_log_end()).await?,
            keys: session
                .prepare(&format!("select {META_COLUMNS}, terms from live where key = any($1)"))
                .await?,
            values: session.prepare(NAMED_VALUES).await?,
            leases: session.prepare(LEASES).await?,
            session,
        }))
    }

    async fn attempt(
        &self,
        speculation: &mut Speculation,
        session: &WriteSession,
        batch: &[Command],
        number: i64,
        full: bool,
    ) -> Attempt {
        if !full && let Some(attempt) = self.attempt_speculatively(speculation, &session.session, batch).await
        {
            return attempt;
        }
        // Boxed: the rare path must not enlarge the future of every batch.
        match Box::pin(self.attempt_locked(speculation, session, batch, number, full)).await {
            Ok(attempt) => attempt,
            Err(error) => Attempt::Failed(error),
        }
    }

    /// Commits in one round trip; `None` if the batch cannot be speculative or an assumption was wrong.
    async fn attempt_speculatively(
        &self,
        speculation: &mut Speculation,
        session: &Session,
        batch: &[Command],
    ) -> Option<Attempt> {
        let speculative = speculation.evaluate(&self.limits, batch)?;
        let (epoch, before) = (speculative.epoch, speculative.log_end);
        let changes = Changes::collect(&speculative.evaluation, before.written)
            .filter(|changes| changes.log.len() == 1)?;
        let channel = self.channel(self.listeners.may_exist(epoch));
        let commits = &speculative.evaluation.commits;
        let meanwhile = || speculation.apply_speculatively(session, commits);
        let assumptions = speculative.assumptions(&changes.live, &self.epoch_check);
        let result = changes.commit_speculatively(session, &assumptions, channel, meanwhile).await;
        let after = log_end_after(&speculative.evaluation, Some(&changes), before);
        match result {
            Ok(false) => {
                speculation.roll_back(commits);
                None
            }
            Ok(true) => {
                let committed = committed_batch(speculative.evaluation, speculative.outcomes);
                speculation.confirm(after, &committed.commits);
                Some(Attempt::Committed(committed))
            }
            Err(error) => {
                speculation.reset();
                let evidence = Evidence { epoch, kind: EvidenceKind::VersionsAfter(before.last_id) };
                let batch = committed_batch(speculative.evaluation, speculative.outcomes);
                Some(error.attempt(batch, evidence))
            }
        }
    }

    /// Commits in two round trips.
    async fn attempt_locked(
        &self,
        speculation: &mut Speculation,
        write_session: &WriteSession,
        batch: &[Command],
        number: i64,
        full: bool,
    ) -> Result<Attempt, DbError> {
        let session = &write_session.session;
        let Evaluated { evaluation, outcomes, view, log_end, current_epoch } =
            self.evaluate_locked(write_session, batch, full).await?;
        let owned = speculation.owned_epoch(current_epoch);
        let write = LockedWrite {
            process: &self.process,
            epoch: owned.unwrap_or(current_epoch + 1),
            batch: number,
            previous_end: owned.is_none().then_some(log_end.last_id),
        };
        let changes = Changes::collect(&evaluation, log_end.written);
        let result = match &changes {
            Some(changes) => {
                let channel = self.channel(self.listeners.exist(session, write.epoch).await?);
                changes.commit_locked(session, &write, channel).await
            }
            None => {
                let ended = session.batch_execute("rollback").await;
                ended.map_err(|error| CommitError { sent: false, error })
            }
        };
        let epoch = if changes.is_some() { Some(write.epoch) } else { owned };
        let after = log_end_after(&evaluation, changes.as_ref(), log_end);
        let reindexed = !evaluation.reindexed.is_empty();
        let committed = committed_batch(evaluation, outcomes);
        speculation.learn(epoch, after, view.named_rows(), &committed.commits);
        if reindexed || result.is_err() {
            speculation.reset();
        }
        Ok(match result {
            Ok(()) => {
                session.cache_committed(&committed.commits);
                Attempt::Committed(committed)
            }
            Err(error) => {
                error.attempt(committed, Evidence { epoch: write.epoch, kind: EvidenceKind::Batch(number) })
            }
        })
    }

    /// Returns the channel to notify, if others listen.
    fn channel(&self, others_listen: bool) -> Option<&str> {
        others_listen.then(|| self.connector.schema())
    }

    /// Begins a transaction, takes the lock, and evaluates every command.
    async fn evaluate_locked<'s>(
        &'s self,
        write_session: &WriteSession,
        batch: &[Command],
        full: bool,
    ) -> Result<Evaluated<'s>, DbError> {
        let mut granted = Vec::new();
        let batch: Vec<&Command> = {
            // Generated once, since a command may be evaluated several times.
            granted.extend(batch.iter().filter_map(|command| match command {
                Command::Grant { id: None, ttl_seconds } => {
                    Some(Command::Grant { id: Some(random_lease_id()), ttl_seconds: *ttl_seconds })
                }
                _ => None,
            }));
            let mut chosen = granted.iter();
            let with_id = |command| match command {
                &Command::Grant { id: None, .. } => chosen.next().unwrap_or(command),
                command => command,
            };
            batch.iter().map(with_id).collect()
        };
        let (log_end, current_epoch, mut view) = self.begin(write_session, NamedRows::of(&batch)).await?;
        let mut evaluation = Evaluation::new(&self.limits, log_end.revision, log_end.last_id);
        let mut outcomes = Vec::with_capacity(batch.len());
        for command in batch {
            if full && matches!(command, Command::Txn(txn) if txn.puts()) {
                let limit = self.limits.database_bytes;
                outcomes.push(Err(Error::Full(format!("the database is over its quota of {limit} bytes"))));
                continue;
            }
            outcomes.push(loop {
                match evaluation.evaluate(&mut view, command) {
                    Ok(outcome) => break Ok(outcome),
                    Err(ViewError::Store(error)) => break Err(error),
                    Err(ViewError::NotFetched(fetch)) => {
                        match view.fetch(&write_session.session, &self.limits, fetch).await {
                            Ok(()) => {}
                            Err(DbError::Rejected(error)) => break Err(error),
                            Err(error) => return Err(error),
                        }
                    }
                }
            });
        }
        Ok(Evaluated { evaluation, outcomes, view, log_end, current_epoch })
    }

    /// Performs the first round trip: the lock, the end of the log, the current epoch and the named rows.
    async fn begin(
        &self,
        write_session: &WriteSession,
        named: NamedRows,
    ) -> Result<(LogEnd, Epoch, FetchedView), DbError> {
        let client = write_session.session.client();
        let keys: Vec<&[u8]> = named.keys.iter().map(|key| &key[..]).collect();
        let values: Vec<&[u8]> = named.values.iter().map(|key| &key[..]).collect();
        let leases: Vec<i64> = named.leases.iter().copied().collect();
        let begin = client.batch_execute(WriteLock::BEGIN);
        let lock = client.execute(&write_session.lock, &[]);
        let fetched = async {
            // Each is sent when first polled: all of them after the lock and before any response.
            let keys = async {
                if keys.is_empty() {
                    Ok(Vec::new())
                } else {
                    client.query(&write_session.keys, &[&keys]).await
                }
            };
            let values = async {
                if values.is_empty() {
                    Ok(Vec::new())
                } else {
                    client.query(&write_session.values, &[&values]).await
                }
            };
            let leases = async {
                if leases.is_empty() {
                    Ok(Vec::new())
                } else {
                    client.query(&write_session.leases, &[&leases]).await
                }
            };
            try_join3(keys, values, leases).await
        };
        let log_end = client.query_one(&write_session.log_end, &[]);
        let (_, _, end, (key_rows, value_rows, lease_rows)) =
            write_session.session.run(try_join4(begin, lock, log_end, fetched)).await?;
        drop((keys, values, leases));
        let mut view = FetchedView::new(column(&end, 4)?, named);
        view.take_keys(&key_rows)?;
        view.take_values(&value_rows)?;
        view.take_leases(&lease_rows)?;
        let log_end =
            LogEnd { revision: column(&end, 0)?, last_id: column(&end, 1)?, written: column(&end, 2)? };
        Ok((log_end, column(&end, 3)?, view))
    }

    /// Resolves an ambiguous commit. Retries until the outcome is known.
    async fn resolve(&self, evidence: Evidence, error: &DbError) -> (Box<WriteSession>, bool) {
        tracing::warn!(?error, ?evidence, "connection lost during a commit; resolving its outcome");
        let mut backoff = Backoff::new();
        loop {
            match self.find(evidence).await {
                Ok((session, committed)) => {
                    tracing::info!(?evidence, committed, "ambiguous commit resolved");
                    return (session, committed);
                }
                Err(error) => tracing::debug!(?error, ?evidence, "cannot resolve the commit yet"),
            }
            backoff.wait().await;
        }
    }

    /// Fences the epoch of a batch and looks for the evidence that it was committed.
    async fn find(&self, evidence: Evidence) -> Result<(Box<WriteSession>, bool), DbError> {
        let write_session = self.connect().await?;
        let session = &write_session.session;
        // The sequence keeps its new value in spite of the rollback below.
        session.batch_execute(&format!("{}; {START_EPOCH}", self.lock.begin_exclusive())).await?;
        let end = session.query(EPOCH_END, &[&self.process, &evidence.epoch]).await?;
        let committed = match (end.first(), evidence.kind) {
            (None, _) => false,
            (Some(row), EvidenceKind::VersionsAfter(id)) => column::<VersionId>(row, 0)? > id,
            (Some(row), EvidenceKind::Batch(number)) => column::<i64>(row, 1)? == number,
        };
        session.batch_execute("rollback").await?;
        Ok((write_session, committed))
    }
}

struct Evaluated<'l> {
    evaluation: Evaluation<'l>,
    outcomes: Vec<Result<Outcome>>,
    view: FetchedView,
    /// The end of the log before the batch.
    log_end: LogEnd,
    current_epoch: Epoch,
}

/// Selects the end of the log, the current epoch and the clock, under the exclusive lock.
fn select_log_end() -> String {
    format!(
        "select revision, last_id, written, {CURRENT_EPOCH}, (extract(epoch from clock_timestamp()) * 1000)::int8
         from head"
    )
}

/// Returns the end of the log after a batch.
fn log_end_after(evaluation: &Evaluation<'_>, changes: Option<&Changes<'_>>, before: LogEnd) -> LogEnd {
    LogEnd {
        revision: evaluation.revision,
        last_id: evaluation.last_id,
        written: changes.map_or(before.written, |changes| changes.written),
    }
}

fn committed_batch(evaluation: Evaluation<'_>, outcomes: Vec<Result<Outcome>>) -> CommittedBatch {
    CommittedBatch { outcomes, commits: evaluation.commits.into_iter().map(Arc::new).collect(), sequence: 0 }
}
