//! The group-commit writer: many callers, one commit.
//!
//! Callers put commands in a bounded queue. One thread takes all that has gathered and has the engine commit it as
//! one batch; another waits until the batch is on the disk, publishes what happened, and answers everyone, while
//! the first is at the next batch. A lone caller waits for nobody; sixty-four share the cost of one.
//!
//! A caller that finds the writer idle commits its own batch of one, where the engine can do that without
//! giving up the thread: on an idle machine two switches between threads cost more than the disk. Where several
//! shared the last batch it waits for the others instead: alone it would take a whole sync from all of them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{Receiver, sync_channel},
    },
    time::{Duration, Instant},
};

use futures_util::FutureExt;

use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot},
};

use crate::{
    Config, Op, Read, Select, Txn,
    engine::{Command, Committed, Engine, Outcome},
    error::{Error, Result},
    metrics::Metrics,
    watch::Hub,
};

/// Commands in one batch at the most: beyond this, latency grows and throughput no longer does.
const BATCH_COMMANDS: usize = 1024;
/// Bytes written by one batch at the most, one large transaction excepted.
const BATCH_BYTES: usize = 8 << 20;
/// How long a caller waits for a place in a full queue.
const QUEUE_WAIT: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Job {
    command: Command,
    bytes: usize,
    queued: Instant,
    reply: Reply,
}

type Reply = oneshot::Sender<Result<Outcome>>;

/// A batch that is committed, and of which nobody has been told.
#[derive(Debug)]
struct Unsettled {
    committed: Committed,
    replies: Vec<Reply>,
}

/// The way to the writer. The thread ends when the last of these is dropped.
#[derive(Debug)]
pub(crate) struct Writer {
    queue: mpsc::Sender<Job>,
    desk: Arc<Desk>,
    /// Whether callers may commit for themselves.
    inline: bool,
    /// Whether the thread that asks may commit.
    on_caller: bool,
    /// How long a caller waits for an answer from a database that may be out of sight.
    patience: Duration,
    finished: tokio::sync::watch::Receiver<bool>,
}

/// Where batches are committed, one at a time.
#[derive(Debug)]
struct Desk {
    engine: Arc<dyn Engine>,
    hub: Arc<Hub>,
    metrics: Metrics,
    /// Held while a batch is committed.
    turn: tokio::sync::Mutex<()>,
    /// Commands that have not been answered. While there are any, nobody passes them.
    waiting: AtomicUsize,
    /// Whether several commands were in the last batch of the thread, or came while it was committed.
    shared: AtomicBool,
}

impl Writer {
    /// Starts the thread, which drives the futures of an engine that blocks on a disk; one that waits for a network
    /// gets a task. Neither costs a hop between threads.
    pub(crate) fn start(
        engine: Arc<dyn Engine>,
        hub: Arc<Hub>,
        metrics: Metrics,
        config: &Config,
    ) -> Result<Self> {
        let (queue, jobs) = mpsc::channel(config.limits.queue);
        let (finish, finished) = tokio::sync::watch::channel(false);
        let runtime = Handle::current();
        let inline = engine.commits_at_once();
        let desk = Arc::new(Desk {
            engine,
            hub,
            metrics,
            turn: tokio::sync::Mutex::default(),
            waiting: AtomicUsize::new(0),
            shared: AtomicBool::new(false),
        });
        let working = desk.clone();
        if desk.engine.commits_at_once() {
            std::thread::Builder::new()
                .name("orlop-writer".into())
                .spawn(move || {
                    working.work(&runtime, jobs);
                    finish.send_replace(true);
                })
                .map_err(|error| Error::Unavailable(format!("cannot start the writer thread: {error}")))?;
        } else {
            runtime.spawn(async move {
                working.commit_each(jobs, |batch, _| working.settle(batch)).await;
                finish.send_replace(true);
            });
        }
        let on_caller = config.commit_on_caller;
        Ok(Self { queue, desk, inline, on_caller, patience: config.commit_timeout, finished })
    }

    /// Has a command committed. If the caller goes away first, the command is dropped unless its batch has begun.
    pub(crate) async fn submit(&self, command: Command) -> Result<Outcome> {
        let (reply, answer) = oneshot::channel();
        let job = Job { bytes: bytes_of(&command), command, queued: Instant::now(), reply };
        if self.inline
            && self.on_caller
            && may_block()
            && let Some(_turn) = self.desk.idle_turn()
        {
            tokio::task::block_in_place(|| self.desk.commit_alone(job));
        } else {
            self.enqueue(job).await?;
        }
        if self.inline {
            return answer.await.unwrap_or_else(|_| Err(stopped()));
        }
        match tokio::time::timeout(self.patience, answer).await {
            Ok(answer) => answer.unwrap_or_else(|_| Err(stopped())),
            Err(_) => Err(Error::AmbiguousCommit("the database has not answered in time".into())),
        }
    }

    async fn enqueue(&self, job: Job) -> Result<()> {
        let place = match self.queue.try_reserve() {
            Ok(place) => place,
            Err(mpsc::error::TrySendError::Closed(())) => return Err(stopped()),
            Err(mpsc::error::TrySendError::Full(())) => {
                let waited = tokio::time::timeout(QUEUE_WAIT, self.queue.reserve()).await;
                waited.ok().and_then(std::result::Result::ok).ok_or_else(|| {
                    Error::Unavailable(format!(
                        "the writer is {} transactions behind",
                        self.queue.max_capacity()
                    ))
                })?
            }
        };
        self.desk.waiting.fetch_add(1, Ordering::AcqRel);
        place.send(job);
        Ok(())
    }

    /// What tells when the thread has answered its last caller, after every `Writer` is gone.
    pub(crate) fn finished(&self) -> tokio::sync::watch::Receiver<bool> {
        self.finished.clone()
    }
}

/// Whether the caller's thread may wait for the disk: a runtime of one thread must not.
fn may_block() -> bool {
    use tokio::runtime::RuntimeFlavor;
    Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
}

fn stopped() -> Error {
    Error::Unavailable("the store is closed".into())
}

impl Desk {
    /// The turn to commit, if nobody has it, nobody waits for it and nobody is about to.
    fn idle_turn(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        if self.waiting.load(Ordering::Acquire) > 0 || self.shared.load(Ordering::Relaxed) {
            return None;
        }
        self.turn.try_lock().ok()
    }

    /// Commits what is queued until the queue is closed, and has it settled beside that.
    fn work(&self, runtime: &Handle, jobs: mpsc::Receiver<Job>) {
        let _within = runtime.enter();
        if !self.engine.settles() {
            return runtime.block_on(self.commit_each(jobs, |batch, _| self.settle(batch)));
        }
        std::thread::scope(|scope| {
            // Without a place in between: while a batch is on its way to the disk the next one is committed, and
            // who comes after that gathers for a third.
            let (hand_over, committed) = sync_channel(0);
            scope.spawn(move || self.settle_each(runtime, &committed));
            runtime.block_on(self.commit_each(jobs, move |batch, others| {
                if others {
                    drop(hand_over.send(batch));
                } else {
                    self.settle(batch);
                }
            }));
        });
    }

    /// Commits batch after batch; `settle` is told whether there are callers beside those of the batch, who wait for
    /// the disk or to be committed.
    async fn commit_each(&self, mut jobs: mpsc::Receiver<Job>, settle: impl Fn(Unsettled, bool)) {
        let mut waiting = Vec::new();
        let (mut callers, mut took) = (1, Duration::ZERO);
        while jobs.recv_many(&mut waiting, BATCH_COMMANDS).await > 0 {
            while !waiting.is_empty() {
                if !self.engine.commits_at_once() {
                    gather(&mut waiting, &mut jobs, callers, took).await;
                }
                let _turn = self.turn.lock().await;
                // While this waited for its turn, more may have come.
                while waiting.len() < BATCH_COMMANDS
                    && let Ok(job) = jobs.try_recv()
                {
                    waiting.push(job);
                }
                self.drop_abandoned(&mut waiting);
                let batch: Vec<_> = waiting.drain(..fitting(&waiting)).collect();
                if batch.is_empty() {
                    continue;
                }
                let size = batch.len();
                let started = Instant::now();
                let committed = self.commit(batch).await;
                callers = self.waiting.load(Ordering::Acquire);
                self.shared.store(callers > 1, Ordering::Relaxed);
                if let Some(batch) = committed {
                    settle(batch, callers > size);
                }
                took = started.elapsed();
            }
        }
    }

    /// Drops commands whose callers have gone away: nobody will learn of the outcome.
    fn drop_abandoned(&self, waiting: &mut Vec<Job>) {
        let before = waiting.len();
        waiting.retain(|job| !job.reply.is_closed());
        self.waiting.fetch_sub(before - waiting.len(), Ordering::AcqRel);
    }

    /// Commits for a caller on its own thread. Called with the turn held.
    fn commit_alone(&self, job: Job) {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        if let Some(Some(batch)) = self.commit(vec![job]).now_or_never() {
            self.settle(batch);
        }
    }

    /// Settles batches in order until there are no more.
    fn settle_each(&self, runtime: &Handle, committed: &Receiver<Unsettled>) {
        let _within = runtime.enter();
        for batch in committed {
            self.settle(batch);
        }
    }

    /// Commits a batch; what is left to do if that worked. Called with the turn held.
    async fn commit(&self, batch: Vec<Job>) -> Option<Unsettled> {
        let metrics = &self.metrics;
        metrics.batch(batch.len());
        let (mut commands, mut replies) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
        for job in batch {
            metrics.queued(job.queued.elapsed());
            commands.push(job.command);
            replies.push(job.reply);
        }
        let started = Instant::now();
        let result = self.engine.commit(&commands).await;
        metrics.sql("commit", started, &result);
        match result {
            Ok(committed) => Some(Unsettled { committed, replies }),
            Err(error) => {
                self.refuse(replies, &error);
                None
            }
        }
    }

    /// Waits until a batch is durable, publishes it and answers everyone.
    fn settle(&self, batch: Unsettled) {
        let Unsettled { committed, replies } = batch;
        match self.engine.settle(committed.ticket) {
            Ok(()) => {
                self.hub.publish(committed.commits);
                self.leave(replies.len());
                answer(replies, committed.outcomes);
            }
            Err(error) => self.refuse(replies, &error),
        }
    }

    /// So many callers are about to be answered.
    fn leave(&self, callers: usize) {
        self.waiting.fetch_sub(callers, Ordering::AcqRel);
    }

    fn refuse(&self, replies: Vec<Reply>, error: &Error) {
        self.metrics.insert_error(false);
        tracing::warn!(%error, commands = replies.len(), "batch not written");
        self.leave(replies.len());
        for reply in replies {
            let _ = reply.send(Err(error.clone()));
        }
    }
}

/// Answers everyone. Many are answered by one task, within the runtime: from this thread each of them would
/// be a wake-up through the runtime's shared queue.
fn answer(replies: Vec<Reply>, outcomes: Vec<Result<Outcome>>) {
    const FEW: usize = 4;
    let many = replies.len() > FEW;
    let answers = move || {
        for (reply, outcome) in replies.into_iter().zip(outcomes) {
            let _ = reply.send(outcome);
        }
    };
    if many {
        tokio::spawn(async move { answers() });
    } else {
        answers();
    }
}

/// Callers who have just been answered are about to ask again, while those who came in meanwhile wait already.
/// Without a moment's patience the two groups take turns for ever, and each commit carries half of what it
/// could. So it waits for as many as there were, as long as they keep coming, but only for a part of what a commit
/// takes.
async fn gather(waiting: &mut Vec<Job>, jobs: &mut mpsc::Receiver<Job>, callers: usize, took: Duration) {
    /// Within this they have been woken, if there are few processors for many.
    const QUIET: Duration = Duration::from_micros(150);
    let callers = callers.min(BATCH_COMMANDS);
    let end = Instant::now() + (took / 4).clamp(QUIET, Duration::from_millis(1));
    let mut came = Instant::now();
    while waiting.len() < callers {
        let now = Instant::now();
        while waiting.len() < callers
            && let Ok(job) = jobs.try_recv()
        {
            waiting.push(job);
            came = now;
        }
        if now >= end || now - came >= QUIET {
            return;
        }
        // They are tasks too, on this thread or on another that may wait for this very processor: let them run.
        std::thread::yield_now();
        tokio::task::yield_now().await;
    }
}

/// How many of the waiting jobs make the next batch.
fn fitting(waiting: &[Job]) -> usize {
    let mut bytes = 0;
    let within = waiting.iter().take_while(|job| {
        bytes += job.bytes;
        bytes <= BATCH_BYTES
    });
    within.count().max(1).min(waiting.len())
}

/// Keys that a transaction's read returns at the most without being taken for a large one.
const SMALL_READ_KEYS: usize = 64;

/// About how many bytes a command writes. A large read counts as a whole batch: its result is held in memory until the
/// batch is committed.
fn bytes_of(command: &Command) -> usize {
    fn txn_bytes(txn: &Txn) -> usize {
        let ops = txn.then.iter().chain(&txn.otherwise);
        ops.map(|op| match op {
            Op::Put(put) => put.key.len() + put.value.len(),
            Op::Txn(inner) => txn_bytes(inner),
            Op::Read(read) if is_large(read) => BATCH_BYTES,
            Op::Delete(_) | Op::Read(_) => 64,
        })
        .sum()
    }
    fn is_large(read: &Read) -> bool {
        let unlimited = read.limit == 0 || read.limit > SMALL_READ_KEYS;
        read.select != Select::Nothing && unlimited && read.range.single().is_none()
    }
    match command {
        Command::Txn(txn) => txn_bytes(txn),
        _ => 64,
    }
}
