//! The group-commit writer.
//!
//! Callers put commands in a bounded queue. One thread takes everything queued and has the engine commit it as one
//! batch. A second thread waits until the batch is durable, publishes it and answers the callers, while the first
//! commits the next batch. A lone caller waits for nobody; sixty-four share the cost of one sync.
//!
//! A caller that finds the writer idle commits its own batch of one, where the engine commits inline: on an idle
//! machine two thread switches cost more than the disk. If the last batch had several callers it queues instead:
//! alone it would delay all of them by a sync.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
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
    engine::{Command, CommittedBatch, Engine, Outcome},
    error::{Error, Result},
    metrics::Metrics,
    watch::Hub,
};

/// Maximum commands of one batch: beyond this, latency grows and throughput no longer does.
const BATCH_COMMANDS: usize = 1024;
/// Maximum bytes written by one batch, one large transaction excepted.
const BATCH_BYTES: usize = 8 << 20;
/// Time a caller waits for a place in a full queue.
const QUEUE_WAIT: Duration = Duration::from_secs(5);
/// Time for which a failed batch makes the store unhealthy, unless another one succeeds.
const FAILURE_MEMORY: Duration = Duration::from_secs(15);

#[derive(Debug)]
struct Job {
    command: Command,
    bytes: usize,
    queued: Instant,
    reply: Reply,
}

type Reply = oneshot::Sender<Result<Outcome>>;

/// A batch that is committed and not acknowledged yet.
#[derive(Debug)]
struct Unacknowledged {
    batch: CommittedBatch,
    replies: Vec<Reply>,
}

/// Submits commands. The writer thread ends when the last of these is dropped.
#[derive(Debug)]
pub(crate) struct Writer {
    queue: mpsc::Sender<Job>,
    committer: Arc<Committer>,
    /// The engine commits inline.
    inline: bool,
    /// Callers may commit on their own thread.
    on_caller: bool,
    /// Time a caller waits for the outcome from a database that may be unreachable.
    commit_timeout: Duration,
    closed: AtomicBool,
    finished: tokio::sync::watch::Receiver<bool>,
}

/// Commits batches, one at a time.
#[derive(Debug)]
struct Committer {
    engine: Arc<dyn Engine>,
    hub: Arc<Hub>,
    metrics: Metrics,
    /// Held while a batch is committed.
    commit_lock: tokio::sync::Mutex<()>,
    /// Commands that have not been answered. While there are any, nobody overtakes the queue.
    unanswered: AtomicUsize,
    /// The last batch of the thread had several callers, or others arrived while it was committed.
    contended: AtomicBool,
    last_failure: Mutex<Option<(Instant, Error)>>,
}

impl Writer {
    /// Starts the writer: a thread for an engine that blocks on a disk, a task for one that waits for a network.
    /// Neither costs a switch between threads.
    pub(crate) fn start(
        engine: Arc<dyn Engine>,
        hub: Arc<Hub>,
        metrics: Metrics,
        config: &Config,
    ) -> Result<Self> {
        let (queue, jobs) = mpsc::channel(config.limits.queue);
        let (finish, finished) = tokio::sync::watch::channel(false);
        let runtime = Handle::current();
        let inline = engine.commits_inline();
        let committer = Arc::new(Committer {
            engine,
            hub,
            metrics,
            commit_lock: tokio::sync::Mutex::default(),
            unanswered: AtomicUsize::new(0),
            contended: AtomicBool::new(false),
            last_failure: Mutex::default(),
        });
        let running = committer.clone();
        if inline {
            std::thread::Builder::new()
                .name("orlop-writer".into())
                .spawn(move || {
                    running.run_thread(&runtime, jobs);
                    finish.send_replace(true);
                })
                .map_err(|error| Error::Unavailable(format!("cannot start the writer thread: {error}")))?;
        } else {
            runtime.spawn(async move {
                running.commit_each(jobs, |batch, _| running.acknowledge(batch)).await;
                finish.send_replace(true);
            });
        }
        Ok(Self {
            queue,
            committer,
            inline,
            on_caller: config.commit_on_caller,
            commit_timeout: config.commit_timeout,
            closed: AtomicBool::new(false),
            finished,
        })
    }

    /// Commits a command. If the caller goes away first, the command is dropped unless its batch has begun.
    pub(crate) async fn submit(&self, command: Command) -> Result<Outcome> {
        if self.closed.load(Ordering::Acquire) {
            return Err(closed());
        }
        let (reply, answer) = oneshot::channel();
        let job = Job { bytes: bytes_of(&command), command, queued: Instant::now(), reply };
        if self.inline
            && self.on_caller
            && may_block()
            && let Some(_lock) = self.committer.try_lock_idle()
        {
            tokio::task::block_in_place(|| self.committer.commit_alone(job));
        } else {
            self.enqueue(job).await?;
        }
        if self.inline {
            return answer.await.unwrap_or_else(|_| Err(closed()));
        }
        match tokio::time::timeout(self.commit_timeout, answer).await {
            Ok(answer) => answer.unwrap_or_else(|_| Err(closed())),
            Err(_) => Err(Error::AmbiguousCommit("the database has not answered in time".into())),
        }
    }

    async fn enqueue(&self, job: Job) -> Result<()> {
        let place = match self.queue.try_reserve() {
            Ok(place) => place,
            Err(mpsc::error::TrySendError::Closed(())) => return Err(closed()),
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
        self.committer.unanswered.fetch_add(1, Ordering::AcqRel);
        place.send(job);
        Ok(())
    }

    /// Fails with the reason why recent batches were not written.
    pub(crate) fn health(&self) -> Result<()> {
        let failure = self.committer.last_failure.lock().unwrap_or_else(PoisonError::into_inner);
        match &*failure {
            Some((at, error)) if at.elapsed() < FAILURE_MEMORY => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Refuses further commands and returns once those submitted before are answered.
    pub(crate) async fn drain(&self) {
        self.closed.store(true, Ordering::Release);
        while self.committer.unanswered.load(Ordering::Acquire) > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Becomes true when the writer has ended, after every `Writer` is gone.
    pub(crate) fn finished(&self) -> tokio::sync::watch::Receiver<bool> {
        self.finished.clone()
    }
}

/// Returns whether the caller's thread may block on the disk: a single-threaded runtime must not.
fn may_block() -> bool {
    use tokio::runtime::RuntimeFlavor;
    Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
}

fn closed() -> Error {
    Error::Unavailable("the store is closed".into())
}

impl Committer {
    /// Takes the commit lock, if nobody holds it, waits for it or is about to.
    fn try_lock_idle(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        if self.unanswered.load(Ordering::Acquire) > 0 || self.contended.load(Ordering::Relaxed) {
            return None;
        }
        self.commit_lock.try_lock().ok()
    }

    /// Commits queued jobs until the queue is closed, and acknowledges them on a second thread.
    fn run_thread(&self, runtime: &Handle, jobs: mpsc::Receiver<Job>) {
        let _runtime = runtime.enter();
        if !self.engine.defers_durability() {
            return runtime.block_on(self.commit_each(jobs, |batch, _| self.acknowledge(batch)));
        }
        std::thread::scope(|scope| {
            // A rendezvous: while one batch is being synced the next is committed, and later callers gather for a
            // third, larger one.
            let (hand_over, committed) = sync_channel(0);
            scope.spawn(move || self.acknowledge_each(runtime, &committed));
            runtime.block_on(self.commit_each(jobs, move |batch, others| {
                if others {
                    drop(hand_over.send(batch));
                } else {
                    self.acknowledge(batch);
                }
            }));
        });
    }

    /// Commits batch after batch. `acknowledge` learns whether callers other than the batch's are waiting.
    async fn commit_each(&self, mut jobs: mpsc::Receiver<Job>, acknowledge: impl Fn(Unacknowledged, bool)) {
        let mut waiting = Vec::new();
        let (mut callers, mut took) = (1, Duration::ZERO);
        while jobs.recv_many(&mut waiting, BATCH_COMMANDS).await > 0 {
            while !waiting.is_empty() {
                if !self.engine.commits_inline() {
                    gather(&mut waiting, &mut jobs, callers, took).await;
                }
                let _lock = self.commit_lock.lock().await;
                // More may have arrived while this waited for the lock.
                while waiting.len() < BATCH_COMMANDS
                    && let Ok(job) = jobs.try_recv()
                {
                    waiting.push(job);
                }
                self.drop_abandoned(&mut waiting);
                let batch: Vec<_> = waiting.drain(..batch_len(&waiting)).collect();
                if batch.is_empty() {
                    continue;
                }
                let size = batch.len();
                let started = Instant::now();
                let committed = self.commit(batch).await;
                callers = self.unanswered.load(Ordering::Acquire);
                self.contended.store(callers > 1, Ordering::Relaxed);
                if let Some(batch) = committed {
                    acknowledge(batch, callers > size);
                }
                took = started.elapsed();
            }
        }
    }

    /// Drops commands whose callers have gone away: nobody will learn of the outcome.
    fn drop_abandoned(&self, waiting: &mut Vec<Job>) {
        let before = waiting.len();
        waiting.retain(|job| !job.reply.is_closed());
        self.unanswered.fetch_sub(before - waiting.len(), Ordering::AcqRel);
    }

    /// Commits one job on the caller's thread. The commit lock must be held.
    fn commit_alone(&self, job: Job) {
        self.unanswered.fetch_add(1, Ordering::AcqRel);
        if let Some(Some(batch)) = self.commit(vec![job]).now_or_never() {
            self.acknowledge(batch);
        }
    }

    /// Acknowledges batches in order until the channel closes.
    fn acknowledge_each(&self, runtime: &Handle, committed: &Receiver<Unacknowledged>) {
        let _runtime = runtime.enter();
        for batch in committed {
            self.acknowledge(batch);
        }
    }

    /// Commits a batch; `None` if it failed and its callers were answered. The commit lock must be held.
    async fn commit(&self, jobs: Vec<Job>) -> Option<Unacknowledged> {
        let metrics = &self.metrics;
        metrics.batch(jobs.len());
        let (mut commands, mut replies) = (Vec::with_capacity(jobs.len()), Vec::with_capacity(jobs.len()));
        for job in jobs {
            metrics.queued(job.queued.elapsed());
            commands.push(job.command);
            replies.push(job.reply);
        }
        let started = Instant::now();
        let result = self.engine.commit(&commands).await;
        metrics.sql("commit", started, &result);
        match result {
            Ok(batch) => Some(Unacknowledged { batch, replies }),
            Err(error) => {
                self.fail(replies, &error);
                None
            }
        }
    }

    /// Waits until a batch is durable, publishes it and answers its callers.
    fn acknowledge(&self, committed: Unacknowledged) {
        let Unacknowledged { batch, replies } = committed;
        match self.engine.wait_durable(batch.sequence) {
            Ok(()) => {
                if !batch.commits.is_empty() {
                    *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = None;
                }
                self.hub.publish(batch.commits);
                self.unanswered.fetch_sub(replies.len(), Ordering::AcqRel);
                answer(replies, batch.outcomes);
            }
            Err(error) => self.fail(replies, &error),
        }
    }

    fn fail(&self, replies: Vec<Reply>, error: &Error) {
        self.metrics.insert_error(false);
        tracing::warn!(%error, commands = replies.len(), "batch not written");
        let failure = Some((Instant::now(), error.clone()));
        *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
        self.unanswered.fetch_sub(replies.len(), Ordering::AcqRel);
        for reply in replies {
            let _ = reply.send(Err(error.clone()));
        }
    }
}

/// Answers callers. Many are answered by one task within the runtime: from this thread each would be a wake-up
/// through the runtime's shared queue.
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

/// Waits for callers that have just been answered to submit again.
///
/// Without this wait they and those that arrived during the last commit form two groups that alternate for ever,
/// and each commit carries half of what it could. The wait ends when as many callers are here as there were, when
/// none has arrived for a moment, or after a quarter of the last commit's time.
async fn gather(waiting: &mut Vec<Job>, jobs: &mut mpsc::Receiver<Job>, callers: usize, took: Duration) {
    /// Enough for woken tasks to run, even with few processors for many of them.
    const QUIET: Duration = Duration::from_micros(150);
    let callers = callers.min(BATCH_COMMANDS);
    let end = Instant::now() + (took / 4).clamp(QUIET, Duration::from_millis(1));
    let mut last_arrival = Instant::now();
    while waiting.len() < callers {
        let now = Instant::now();
        while waiting.len() < callers
            && let Ok(job) = jobs.try_recv()
        {
            waiting.push(job);
            last_arrival = now;
        }
        if now >= end || now - last_arrival >= QUIET {
            return;
        }
        // The callers are tasks too, on this thread or on another that may wait for this very processor.
        std::thread::yield_now();
        tokio::task::yield_now().await;
    }
}

/// Returns how many of the waiting jobs form the next batch.
fn batch_len(waiting: &[Job]) -> usize {
    let mut bytes = 0;
    let within = waiting.iter().take_while(|job| {
        bytes += job.bytes;
        bytes <= BATCH_BYTES
    });
    within.count().max(1).min(waiting.len())
}

/// Maximum keys of a read in a transaction that does not count as large.
const SMALL_READ_KEYS: usize = 64;

/// Estimates the bytes that a command writes. A large read counts as a whole batch: its result is held in memory until the
/// batch is committed.
fn bytes_of(command: &Command) -> usize {
    fn txn_bytes(txn: &Txn) -> usize {
        let ops = txn.then.iter().chain(&txn.otherwise);
        txn.put_bytes() + ops.map(other_bytes).sum::<usize>()
    }
    fn other_bytes(op: &Op) -> usize {
        match op {
            Op::Put(_) => 0,
            Op::Txn(inner) => inner.then.iter().chain(&inner.otherwise).map(other_bytes).sum(),
            Op::Read(read) if is_large(read) => BATCH_BYTES,
            Op::Delete(_) | Op::Read(_) => 64,
        }
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
