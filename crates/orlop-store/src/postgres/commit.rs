//! Batches: one round trip or two, and one sync to the disk.
//!
//! Mostly it is known what a batch will find (`guess.rs`); then one statement makes sure of that, writes everything
//! and commits. Otherwise there are two round trips. The first begins a transaction, waits for the lock and fetches
//! what the batch names. The batch is then evaluated here. The second writes everything, notifies the other processes
//! and commits.
//!
//! Either way the lock is held while anything is written (`turn.rs`). That makes batches follow each other, whichever
//! process they come from: the next one sees all of this one, and revisions have no gaps.
//!
//! A connection can be lost while the commit is under way. Then nobody knows yet whether it happened. To get the lock
//! is to wait until the old transaction is over one way or the other, and to end its turn is to make sure that nothing
//! comes of what is still on its way. How far the turn came, which is final then, tells.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::{try_join3, try_join4};
use tokio::sync::Mutex;
use tokio_postgres::Statement;

use super::{
    audience::Audience,
    connect::{Backoff, Connector, Session},
    fault::Fault,
    guess::{Guesses, Head},
    read::NARROW,
    rows::column,
    statement::Taken,
    turn::{self, Turn, WriteLock},
    view::{Fetched, LEASES, Named},
    write::{Changes, Unsure},
};
use crate::{
    Limits,
    engine::{Command, Committed, Outcome},
    error::{Error, Result},
    evaluate::{Evaluation, Unseen, random_lease_id},
    event::VersionId,
    metrics::Metrics,
};

/// How long a batch is tried before it is answered `Unavailable`. While it is unknown whether it has
/// happened, there is no such end.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it is kept how the last turns of processes that are gone ended. One that still wants to know holds on for
/// less.
const FORGET_TURNS: &str = "delete from writer where seen < now() - interval '7 days'";

/// What a batch finds, once it has the lock.
const FOUND: &str = "
    select revision, last_id, written, (select last_value from turn),
        (extract(epoch from clock_timestamp()) * 1000)::int8
    from head";
/// How far a process's last turn came. The lock must be held.
const CAME_TO: &str = "
    select last_id, batch from (
        select process, turn, (select last_id from head) as last_id, batch from state
        union all select process, turn, last_id, batch from writer
    ) turns where process = $1 and turn = $2";
const NAMED_VALUES: &str = "
    select v.id, v.key, v.value, v.checksum from live l join log v on v.id = l.id where l.key = any($1)";

/// The one connection that writes.
#[derive(Debug)]
pub(super) struct Writer {
    connector: Arc<Connector>,
    limits: Limits,
    metrics: Metrics,
    /// This process, among those that write to the database.
    process: String,
    lock: WriteLock,
    if_turn_is: String,
    audience: Arc<Audience>,
    line: Mutex<Line>,
}

#[derive(Debug, Default)]
struct Line {
    /// Taken out while a batch is under way, put back when it is known to be between transactions.
    session: Option<Box<Writing>>,
    /// The number of the last batch begun.
    batch: i64,
    guesses: Guesses,
}

/// A session with its statements.
#[derive(Debug)]
struct Writing {
    session: Session,
    lock: Statement,
    found: Statement,
    keys: Statement,
    values: Statement,
    leases: Statement,
}

/// What came of one attempt.
enum Attempt {
    Done(Committed),
    /// Nothing of the batch happened.
    Failed(Fault),
    /// The server was asked to commit and did not answer.
    Unknown(Committed, Trace, Fault),
}

/// What a batch leaves behind if it is committed.
#[derive(Clone, Copy, Debug)]
struct Trace {
    turn: Turn,
    kind: TraceKind,
}

#[derive(Clone, Copy, Debug)]
enum TraceKind {
    /// The turn says that it was its last under the lock.
    Batch(i64),
    /// There are versions after this one.
    After(VersionId),
}

impl Unsure {
    fn attempt(self, committed: Committed, trace: Trace) -> Attempt {
        match self {
            // An error that the server has answered with means that it has undone everything.
            Self { committing: true, fault: fault @ Fault::Lost(_) } => {
                Attempt::Unknown(committed, trace, fault)
            }
            Self { fault, .. } => Attempt::Failed(fault),
        }
    }
}

impl Writer {
    pub(super) fn new(
        connector: Arc<Connector>,
        audience: Arc<Audience>,
        limits: Limits,
        metrics: Metrics,
    ) -> Self {
        let lock = WriteLock::of(connector.schema());
        // Two ids are 126 unpredictable bits.
        let process = format!("{:016x}{:016x}", random_lease_id(), random_lease_id());
        let if_turn_is = lock.if_turn_is();
        Self { connector, limits, metrics, process, lock, if_turn_is, audience, line: Mutex::default() }
    }

    pub(super) async fn commit(&self, batch: &[Command], full: bool) -> Result<Committed> {
        let mut line = self.line.lock().await;
        line.batch += 1;
        let number = line.batch;
        let started = Instant::now();
        let mut backoff = Backoff::new();
        loop {
            let fault = match self.writing(&mut line).await {
                Err(fault) => fault,
                Ok((writing, fresh)) => {
                    match self.attempt(&mut line.guesses, &writing, batch, number, full).await {
                        Attempt::Done(committed) => {
                            line.session = Some(writing);
                            return Ok(committed);
                        }
                        Attempt::Failed(fault) => {
                            if !fresh && fault.passes() {
                                // The session was lost while it lay idle. That costs no patience.
                                backoff = Backoff::new();
                            }
                            fault
                        }
                        Attempt::Unknown(committed, trace, fault) => {
                            drop(writing);
                            line.guesses.forget();
                            let (writing, happened) = Box::pin(self.resolve(trace, &fault)).await;
                            line.session = Some(writing);
                            if happened {
                                return Ok(committed);
                            }
                            fault
                        }
                    }
                }
            };
            if !fault.passes() || started.elapsed() >= PATIENCE {
                return Err(fault.given_up());
            }
            self.metrics.insert_error(true);
            backoff.wait().await;
        }
    }

    /// The session to write with, and whether it is a new one.
    async fn writing(&self, line: &mut Line) -> Result<(Box<Writing>, bool), Fault> {
        match line.session.take() {
            Some(writing) if !writing.session.is_closed() => Ok((writing, false)),
            _ => {
                line.guesses.end_turn();
                Ok((Box::pin(self.connect()).await?, true))
            }
        }
    }

    async fn connect(&self) -> Result<Box<Writing>, Fault> {
        let session = self.connector.connect().await?;
        session.simple(FORGET_TURNS).await?;
        let backend = session.query("select pg_backend_pid()", &[]).await?;
        self.audience.writes_as(backend.first().map_or(Ok(0), |row| column(row, 0))?);
        Ok(Box::new(Writing {
            lock: session.prepare(&self.lock.take()).await?,
            found: session.prepare(FOUND).await?,
            keys: session.prepare(&format!("select {NARROW}, terms from live where key = any($1)")).await?,
            values: session.prepare(NAMED_VALUES).await?,
            leases: session.prepare(LEASES).await?,
            session,
        }))
    }

    async fn attempt(
        &self,
        guesses: &mut Guesses,
        writing: &Writing,
        batch: &[Command],
        number: i64,
        full: bool,
    ) -> Attempt {
        if !full && let Some(attempt) = self.guess(guesses, &writing.session, batch).await {
            return attempt;
        }
        // What is seldom done is not to make the room that every batch takes.
        match Box::pin(self.under_the_lock(guesses, writing, batch, number, full)).await {
            Ok(attempt) => attempt,
            Err(fault) => Attempt::Failed(fault),
        }
    }

    /// One round trip; `None` if that cannot be or the guess was wrong.
    async fn guess(&self, guesses: &mut Guesses, session: &Session, batch: &[Command]) -> Option<Attempt> {
        let guessed = guesses.evaluate(&self.limits, batch)?;
        let found = guessed.found;
        let changes =
            Changes::of(&guessed.evaluation, found.written).filter(|changes| changes.log.len() == 1)?;
        let channel = self.channel(self.audience.is_known_empty(guessed.turn));
        let commits = &guessed.evaluation.commits;
        let meanwhile = || guesses.hope_for(session, commits);
        let taken = guessed.taken_for_granted(&changes.live, &self.if_turn_is);
        let ended = changes.commit_if(session, &taken, channel, meanwhile).await;
        let left = left(&guessed.evaluation, Some(&changes), found);
        match ended {
            Ok(false) => {
                guesses.were_wrong(commits);
                None
            }
            Ok(true) => {
                let committed = committed(guessed.evaluation, guessed.outcomes);
                guesses.were_right(left, &committed.commits);
                Some(Attempt::Done(committed))
            }
            Err(unsure) => {
                guesses.forget();
                let trace = Trace { turn: guessed.turn, kind: TraceKind::After(found.last_id) };
                Some(unsure.attempt(committed(guessed.evaluation, guessed.outcomes), trace))
            }
        }
    }

    /// Two round trips.
    async fn under_the_lock(
        &self,
        guesses: &mut Guesses,
        writing: &Writing,
        batch: &[Command],
        number: i64,
        full: bool,
    ) -> Result<Attempt, Fault> {
        let session = &writing.session;
        let Evaluated { evaluation, outcomes, view, found, lasting } =
            self.evaluate(writing, batch, full).await?;
        let mine = guesses.go_on(lasting);
        let taken = Taken {
            process: &self.process,
            turn: mine.unwrap_or(lasting + 1),
            batch: number,
            ends_at: mine.is_none().then_some(found.last_id),
        };
        let changes = Changes::of(&evaluation, found.written);
        let ended = match &changes {
            Some(changes) => {
                let channel = self.channel(self.audience.is_empty(session, taken.turn).await?);
                changes.commit(session, &taken, channel).await
            }
            None => {
                let ended = session.simple("rollback").await;
                ended.map_err(|fault| Unsure { committing: false, fault })
            }
        };
        let turn = if changes.is_some() { Some(taken.turn) } else { mine };
        let left = left(&evaluation, changes.as_ref(), found);
        let reindexed = !evaluation.reindexed.is_empty();
        let committed = committed(evaluation, outcomes);
        guesses.learn(turn, left, view.rows(), &committed.commits);
        if reindexed || ended.is_err() {
            guesses.forget();
        }
        Ok(match ended {
            Ok(()) => {
                session.keep_committed(&committed.commits);
                Attempt::Done(committed)
            }
            Err(unsure) => {
                unsure.attempt(committed, Trace { turn: taken.turn, kind: TraceKind::Batch(number) })
            }
        })
    }

    /// Where to tell others of a batch, if there are any.
    fn channel(&self, alone: bool) -> Option<&str> {
        (!alone).then(|| self.connector.schema())
    }

    /// Begins, locks, and evaluates every command.
    async fn evaluate<'s>(
        &'s self,
        writing: &Writing,
        batch: &[Command],
        full: bool,
    ) -> Result<Evaluated<'s>, Fault> {
        let mut granted = Vec::new();
        let batch: Vec<&Command> = {
            // An id is chosen once: a command may be evaluated several times.
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
        let (found, lasting, mut view) = self.begin(writing, Named::by(&batch)).await?;
        let mut evaluation = Evaluation::new(&self.limits, found.revision, found.last_id);
        let mut outcomes = Vec::with_capacity(batch.len());
        for command in batch {
            if full && matches!(command, Command::Txn(txn) if txn.puts()) {
                let limit = self.limits.database_bytes;
                outcomes.push(Err(Error::Full(format!("the database is over its {limit} bytes"))));
                continue;
            }
            outcomes.push(loop {
                match evaluation.run(&mut view, command) {
                    Ok(outcome) => break Ok(outcome),
                    Err(Unseen::Error(error)) => break Err(error),
                    Err(Unseen::Need(need)) => match view.fetch(&writing.session, &self.limits, need).await {
                        Ok(()) => {}
                        Err(Fault::Answer(error)) => break Err(error),
                        Err(fault) => return Err(fault),
                    },
                }
            });
        }
        Ok(Evaluated { evaluation, outcomes, view, found, lasting })
    }

    /// The first round trip: where the log ends, whose turn it is, and what is fetched with that.
    async fn begin(&self, writing: &Writing, named: Named) -> Result<(Head, Turn, Fetched), Fault> {
        let client = writing.session.client();
        let keys: Vec<&[u8]> = named.keys.iter().map(|key| &key[..]).collect();
        let values: Vec<&[u8]> = named.values.iter().map(|key| &key[..]).collect();
        let leases: Vec<i64> = named.leases.iter().copied().collect();
        let begin = client.batch_execute(turn::BEGIN);
        let lock = client.execute(&writing.lock, &[]);
        let fetched = async {
            // Each is sent when first polled, so all of them after the lock and before any answer.
            let keys = async {
                if keys.is_empty() { Ok(Vec::new()) } else { client.query(&writing.keys, &[&keys]).await }
            };
            let values = async {
                if values.is_empty() {
                    Ok(Vec::new())
                } else {
                    client.query(&writing.values, &[&values]).await
                }
            };
            let leases = async {
                if leases.is_empty() {
                    Ok(Vec::new())
                } else {
                    client.query(&writing.leases, &[&leases]).await
                }
            };
            try_join3(keys, values, leases).await
        };
        let found = client.query_one(&writing.found, &[]);
        let (_, _, found, (key_rows, value_rows, lease_rows)) =
            writing.session.run(try_join4(begin, lock, found, fetched)).await?;
        drop((keys, values, leases));
        let mut view = Fetched::new(column(&found, 4)?, named);
        view.take_keys(&key_rows)?;
        view.take_values(&value_rows)?;
        view.take_leases(&lease_rows)?;
        let head =
            Head { revision: column(&found, 0)?, last_id: column(&found, 1)?, written: column(&found, 2)? };
        Ok((head, column(&found, 3)?, view))
    }

    /// Finds out whether a batch happened. Does not return before that is known.
    async fn resolve(&self, trace: Trace, fault: &Fault) -> (Box<Writing>, bool) {
        tracing::warn!(?fault, ?trace, "connection lost while committing; finding out what became of it");
        let mut backoff = Backoff::new();
        loop {
            match self.look_for(trace).await {
                Ok((writing, happened)) => {
                    tracing::info!(?trace, happened, "commit resolved");
                    return (writing, happened);
                }
                Err(fault) => tracing::debug!(?fault, ?trace, "cannot resolve the commit yet"),
            }
            backoff.wait().await;
        }
    }

    async fn look_for(&self, trace: Trace) -> Result<(Box<Writing>, bool), Fault> {
        let writing = self.connect().await?;
        let session = &writing.session;
        session.simple(&format!("{}; {}", self.lock.begin(), turn::END)).await?;
        let turn = session.query(CAME_TO, &[&self.process, &trace.turn]).await?;
        let happened = match (turn.first(), trace.kind) {
            (None, _) => false,
            (Some(row), TraceKind::After(id)) => column::<VersionId>(row, 0)? > id,
            (Some(row), TraceKind::Batch(number)) => column::<i64>(row, 1)? == number,
        };
        session.simple("rollback").await?;
        Ok((writing, happened))
    }
}

struct Evaluated<'l> {
    evaluation: Evaluation<'l>,
    outcomes: Vec<Result<Outcome>>,
    view: Fetched,
    found: Head,
    /// The turn that lasts.
    lasting: Turn,
}

/// Where the log ends after a batch.
fn left(evaluation: &Evaluation<'_>, changes: Option<&Changes<'_>>, found: Head) -> Head {
    Head {
        revision: evaluation.revision,
        last_id: evaluation.last_id,
        written: changes.map_or(found.written, |changes| changes.written),
    }
}

fn committed(evaluation: Evaluation<'_>, outcomes: Vec<Result<Outcome>>) -> Committed {
    Committed { outcomes, commits: evaluation.commits.into_iter().map(Arc::new).collect(), ticket: 0 }
}
