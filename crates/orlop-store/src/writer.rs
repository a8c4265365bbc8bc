//! The group-commit writer: many callers, one commit.
//!
//! Callers put commands in a bounded queue. One thread takes all that has gathered, has the engine commit
//! it as one batch with one sync to the disk, publishes what happened, and answers everyone. A lone caller
//! waits for nobody; sixty-four share the cost of one.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::{mpsc, oneshot};

use crate::{
    Op, Txn,
    engine::{Command, Engine, Outcome},
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

struct Job {
    command: Command,
    bytes: usize,
    queued: Instant,
    reply: oneshot::Sender<Result<Outcome>>,
}

/// The way to the writer. The thread ends when the last of these is dropped.
#[derive(Debug)]
pub(crate) struct Writer {
    queue: mpsc::Sender<Job>,
    finished: tokio::sync::watch::Receiver<bool>,
}

impl Writer {
    /// Starts the thread. It drives the engine's futures itself, so that an engine that blocks on a disk
    /// costs no hop between threads.
    pub(crate) fn start(
        engine: Arc<dyn Engine>,
        hub: Arc<Hub>,
        metrics: Metrics,
        queue_limit: usize,
    ) -> Result<Self> {
        let (queue, jobs) = mpsc::channel(queue_limit);
        let (finish, finished) = tokio::sync::watch::channel(false);
        let runtime = tokio::runtime::Handle::current();
        std::thread::Builder::new()
            .name("orlop-writer".into())
            .spawn(move || {
                runtime.block_on(write(engine, hub, metrics, jobs));
                finish.send_replace(true);
            })
            .map_err(|error| Error::Unavailable(format!("cannot start the writer thread: {error}")))?;
        Ok(Self { queue, finished })
    }

    /// Has a command committed. Once it is queued it runs to its end, even if the caller goes away.
    pub(crate) async fn submit(&self, command: Command) -> Result<Outcome> {
        let (reply, answer) = oneshot::channel();
        let job = Job { bytes: bytes_of(&command), command, queued: Instant::now(), reply };
        match self.queue.try_send(job) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(job)) => {
                self.queue.send_timeout(job, QUEUE_WAIT).await.map_err(|_| {
                    Error::Unavailable(format!(
                        "the writer is {} transactions behind",
                        self.queue.max_capacity()
                    ))
                })?;
            }
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(stopped()),
        }
        answer.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// What tells when the thread has answered its last caller, after every `Writer` is gone.
    pub(crate) fn finished(&self) -> tokio::sync::watch::Receiver<bool> {
        self.finished.clone()
    }
}

fn stopped() -> Error {
    Error::Unavailable("the store is closed".into())
}

async fn write(engine: Arc<dyn Engine>, hub: Arc<Hub>, metrics: Metrics, mut jobs: mpsc::Receiver<Job>) {
    let mut waiting = Vec::new();
    while jobs.recv_many(&mut waiting, BATCH_COMMANDS).await > 0 {
        while !waiting.is_empty() {
            let batch = waiting.drain(..fitting(&waiting)).collect();
            commit(&*engine, &hub, &metrics, batch).await;
        }
    }
}

/// How many of the waiting jobs make the next batch.
fn fitting(waiting: &[Job]) -> usize {
    let mut bytes = 0;
    let within = waiting.iter().take_while(|job| {
        bytes += job.bytes;
        bytes <= BATCH_BYTES
    });
    within.count().max(1)
}

async fn commit(engine: &dyn Engine, hub: &Hub, metrics: &Metrics, batch: Vec<Job>) {
    metrics.batch(batch.len());
    let (mut commands, mut replies) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
    for job in batch {
        metrics.queued(job.queued.elapsed());
        commands.push(job.command);
        replies.push(job.reply);
    }
    let started = Instant::now();
    let result = engine.commit(&commands).await;
    metrics.sql("commit", started, &result);
    match result {
        Ok(committed) => {
            hub.publish(committed.commits);
            for (reply, outcome) in replies.into_iter().zip(committed.outcomes) {
                let _ = reply.send(outcome);
            }
        }
        Err(error) => {
            metrics.insert_error(false);
            tracing::warn!(%error, commands = commands.len(), "batch not committed");
            for reply in replies {
                let _ = reply.send(Err(error.clone()));
            }
        }
    }
}

/// About how many bytes a command writes.
fn bytes_of(command: &Command) -> usize {
    fn txn_bytes(txn: &Txn) -> usize {
        let ops = txn.then.iter().chain(&txn.otherwise);
        ops.map(|op| match op {
            Op::Put(put) => put.key.len() + put.value.len(),
            Op::Txn(inner) => txn_bytes(inner),
            Op::Delete(_) | Op::Read(_) => 64,
        })
        .sum()
    }
    match command {
        Command::Txn(txn) => txn_bytes(txn),
        _ => 64,
    }
}
