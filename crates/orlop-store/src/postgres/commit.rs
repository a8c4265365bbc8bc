//! Batches: one round trip or two, and one sync to the disk.
//!
//! Mostly it is known what a batch will find (`guess.rs`); then one statement makes sure of that, writes everything
//! and commits. Otherwise there are two round trips. The first begins a transaction, locks the state's row and fetches
//! what the batch names. The batch is then evaluated here. The second writes everything, notifies the other processes
//! and commits.
//!
//! Either way the state's row is held while anything is written. That makes batches follow each other, whichever
//! process they come from: the next one sees all of this one, and revisions have no gaps.
//!
//! A connection can be lost while the commit is under way. Then nobody knows yet whether it happened: the
//! batch's number, which is written in the same transaction, tells. To lock the state's row anew is to wait
//! until the old transaction is over one way or the other, so what is read after that is final.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::try_join3;
use tokio::sync::Mutex;
use tokio_postgres::Statement;

use super::{
    audience::Audience,
    connect::{Backoff, Connector, Session},
    fault::Fault,
    guess::{Guesses, State},
    read::NARROW,
    rows::column,
    statement::Mark,
    view::{Fetched, LEASES, Named},
    write::{Changes, Unsure},
};
use crate::{
    Limits,
    engine::{Command, Committed, Outcome},
    error::{Error, Result},
    evaluate::{Evaluation, Unseen, random_lease_id},
    metrics::Metrics,
};

/// How long a batch is tried before it is answered `Unavailable`. While it is unknown whether it has
/// happened, there is no such end.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the notes of processes that are gone are kept. One that is still resolving holds on for less.
const FORGET_PROCESSES: &str = "delete from writer where seen < now() - interval '7 days'";

const LOCK: &str = "
    select revision, last_id, joined, (extract(epoch from clock_timestamp()) * 1000)::int8, process
    from state for update";
/// What this process committed last. The state's row must be locked.
const LAST_BATCH: &str = "
    select coalesce((select batch from state where process = $1), (select batch from writer where process = $1), 0)";
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
    audience: Arc<Audience>,
    line: Mutex<Line>,
}

#[derive(Debug, Default)]
struct Line {
    /// Taken out while a batch is under way, put back when it is known to be between transactions.
    session: Option<Writing>,
    /// The number of the last batch begun.
    batch: i64,
    guesses: Guesses,
}

/// A session with its statements.
#[derive(Debug)]
struct Writing {
    session: Session,
    lock: Statement,
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
    Unknown(Committed, Fault),
}

impl Unsure {
    fn attempt(self, committed: Committed) -> Attempt {
        match self {
            // An error that the server has answered with means that it has undone everything.
            Self { committing: true, fault: fault @ Fault::Lost(_) } => Attempt::Unknown(committed, fault),
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
        // Two ids are 126 unpredictable bits.
        let process = format!("{:016x}{:016x}", random_lease_id(), random_lease_id());
        Self { connector, limits, metrics, process, audience, line: Mutex::default() }
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
                        Attempt::Unknown(committed, fault) => {
                            drop(writing);
                            line.guesses.forget();
                            let (writing, happened) = self.resolve(number, &fault).await;
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
    async fn writing(&self, line: &mut Line) -> Result<(Writing, bool), Fault> {
        match line.session.take() {
            Some(writing) if !writing.session.is_closed() => Ok((writing, false)),
            _ => Ok((self.connect().await?, true)),
        }
    }

    async fn connect(&self) -> Result<Writing, Fault> {
        let session = self.connector.connect().await?;
        session.simple(FORGET_PROCESSES).await?;
        let backend = session.query("select pg_backend_pid()", &[]).await?;
        self.audience.writes_as(backend.first().map_or(Ok(0), |row| column(row, 0))?);
        Ok(Writing {
            lock: session.prepare(LOCK).await?,
            keys: session.prepare(&format!("select {NARROW}, terms from live where key = any($1)")).await?,
            values: session.prepare(NAMED_VALUES).await?,
            leases: session.prepare(LEASES).await?,
            session,
        })
    }

    async fn attempt(
        &self,
        guesses: &mut Guesses,
        writing: &Writing,
        batch: &[Command],
        number: i64,
        full: bool,
    ) -> Attempt {
        if !full && let Some(attempt) = self.guess(guesses, &writing.session, batch, number).await {
            return attempt;
        }
        match self.under_the_lock(guesses, writing, batch, number, full).await {
            Ok(attempt) => attempt,
            Err(fault) => Attempt::Failed(fault),
        }
    }

    /// One round trip; `None` if that cannot be or the guess was wrong.
    async fn guess(
        &self,
        guesses: &mut Guesses,
        session: &Session,
        batch: &[Command],
        number: i64,
    ) -> Option<Attempt> {
        let guessed = guesses.evaluate(&self.limits, batch)?;
        let changes = Changes::of(&guessed.evaluation).filter(|changes| changes.log.len() == 1)?;
        let mark = self.mark(number, self.audience.is_known_empty(guessed.joined()));
        let commits = &guessed.evaluation.commits;
        let meanwhile = || guesses.hope_for(session, commits);
        let ended =
            changes.commit_if(session, &mark, &guessed.taken_for_granted(&changes.live), meanwhile).await;
        match ended {
            Ok(false) => {
                guesses.were_wrong(commits);
                None
            }
            Ok(true) => {
                let left = guessed.left();
                let committed = committed(guessed.evaluation, guessed.outcomes);
                guesses.were_right(left, &committed.commits);
                Some(Attempt::Done(committed))
            }
            Err(unsure) => {
                guesses.forget();
                Some(unsure.attempt(committed(guessed.evaluation, guessed.outcomes)))
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
        let Evaluated { evaluation, outcomes, view, found } = self.evaluate(writing, batch, full).await?;
        let joined = found.0.joined;
        let mark = self.mark(number, self.audience.is_empty(session, joined).await?);
        let ended = match Changes::of(&evaluation) {
            Some(changes) => changes.commit(session, &mark).await,
            None => {
                let ended = session.simple("rollback").await;
                ended.map_err(|fault| Unsure { committing: false, fault })
            }
        };
        let left = State { revision: evaluation.revision, last_id: evaluation.last_id, joined };
        let reindexed = !evaluation.reindexed.is_empty();
        let committed = committed(evaluation, outcomes);
        guesses.learn(found, left, view.rows(), &committed.commits);
        if reindexed || ended.is_err() {
            guesses.forget();
        }
        Ok(match ended {
            Ok(()) => {
                session.keep_committed(&committed.commits);
                Attempt::Done(committed)
            }
            Err(unsure) => unsure.attempt(committed),
        })
    }

    fn mark(&self, batch: i64, alone: bool) -> Mark<'_> {
        Mark { process: &self.process, batch, channel: (!alone).then(|| self.connector.schema()) }
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
        let (found, mut view) = self.begin(writing, Named::by(&batch)).await?;
        let mut evaluation = Evaluation::new(&self.limits, found.0.revision, found.0.last_id);
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
        Ok(Evaluated { evaluation, outcomes, view, found })
    }

    /// The first round trip: the state's row, whether this process wrote it last, and what is fetched with it.
    async fn begin(&self, writing: &Writing, named: Named) -> Result<((State, bool), Fetched), Fault> {
        let client = writing.session.client();
        let keys: Vec<&[u8]> = named.keys.iter().map(|key| &key[..]).collect();
        let values: Vec<&[u8]> = named.values.iter().map(|key| &key[..]).collect();
        let leases: Vec<i64> = named.leases.iter().copied().collect();
        let begin = client.batch_execute("begin");
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
        let lock = client.query_one(&writing.lock, &[]);
        let (_, state, (key_rows, value_rows, lease_rows)) =
            writing.session.run(try_join3(begin, lock, fetched)).await?;
        drop((keys, values, leases));
        let mut view = Fetched::new(column(&state, 3)?, named);
        view.take_keys(&key_rows)?;
        view.take_values(&value_rows)?;
        view.take_leases(&lease_rows)?;
        let [revision, last_id, joined] = [column(&state, 0)?, column(&state, 1)?, column(&state, 2)?];
        let ours = column::<&str>(&state, 4)? == self.process;
        Ok(((State { revision, last_id, joined }, ours), view))
    }

    /// Finds out whether a batch happened. Does not return before that is known.
    async fn resolve(&self, number: i64, fault: &Fault) -> (Writing, bool) {
        tracing::warn!(
            ?fault,
            batch = number,
            "connection lost while committing; finding out what became of it"
        );
        let mut backoff = Backoff::new();
        loop {
            match self.look(number).await {
                Ok((writing, happened)) => {
                    tracing::info!(batch = number, happened, "commit resolved");
                    return (writing, happened);
                }
                Err(fault) => tracing::debug!(?fault, batch = number, "cannot resolve the commit yet"),
            }
            backoff.wait().await;
        }
    }

    async fn look(&self, number: i64) -> Result<(Writing, bool), Fault> {
        let writing = self.connect().await?;
        writing.session.simple("begin").await?;
        writing.session.query(LOCK, &[]).await?;
        let rows = writing.session.query(LAST_BATCH, &[&self.process]).await?;
        let last: i64 = rows.first().map_or(Ok(0), |row| column(row, 0))?;
        writing.session.simple("rollback").await?;
        Ok((writing, last == number))
    }
}

struct Evaluated<'l> {
    evaluation: Evaluation<'l>,
    outcomes: Vec<Result<Outcome>>,
    view: Fetched,
    /// The state's row, and whether this process wrote it last.
    found: (State, bool),
}

fn committed(evaluation: Evaluation<'_>, outcomes: Vec<Result<Outcome>>) -> Committed {
    Committed { outcomes, commits: evaluation.commits.into_iter().map(Arc::new).collect(), ticket: 0 }
}
