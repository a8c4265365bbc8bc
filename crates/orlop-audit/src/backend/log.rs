//! The log backend: one line an event, written by one thread.
//!
//! Requests append their line to a buffer in memory; the thread takes the whole buffer and writes it at once. In the
//! blocking modes a request waits until the thread has written its line: requests that come together share one
//! write.

use std::{
    io::{self, Write},
    path::PathBuf,
    pin::Pin,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::sync::watch;

use super::{
    Backend, BatchOptions, Mode, Ticket, TruncateOptions,
    rotation::{RotatingFile, RotationOptions},
    throttle::TokenBucket,
};
use crate::metrics::{Metrics, Plugin};

/// Bytes of events that wait for the disk.
const BUFFER_BYTES_MAX: usize = 64 << 20;
/// Longest time that an event waits for others.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Time to write what is queued when the server stops.
const CLOSE_MAX: Duration = Duration::from_secs(10);

/// Format of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// An event in JSON.
    Json,
    /// Text, with a part of the event.
    Legacy,
}

/// Options of the log backend.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// The file; `-` for standard output.
    pub path: PathBuf,
    /// Rotation.
    pub rotation: RotationOptions,
    /// Format of the lines.
    pub format: Format,
    /// Mode, queue and batches.
    pub batch: BatchOptions,
    /// Limits on the size of events.
    pub truncate: Option<TruncateOptions>,
}

/// Writes events to a file.
#[derive(Debug)]
pub struct LogBackend {
    shared: Arc<Shared>,
    written: watch::Receiver<Progress>,
    options: LogOptions,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    filled: Condvar,
    metrics: Metrics,
}

#[derive(Debug, Default)]
struct Queue {
    lines: Vec<u8>,
    events: usize,
    /// Number of the last event that was queued.
    last: u64,
    closed: bool,
}

/// Progress of the writing thread.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// Number of the last event that was written or lost.
    done: u64,
    /// Number of the last event that was lost.
    lost: u64,
    /// Set when the thread has ended.
    ended: bool,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogBackend {
    /// Opens the file and starts the thread.
    pub fn open(options: LogOptions, metrics: Metrics) -> io::Result<Self> {
        let mut output = Output::open(&options)?;
        let shared = Arc::new(Shared { queue: Mutex::default(), filled: Condvar::new(), metrics });
        let (progress, written) = watch::channel(Progress::default());
        let (queue, batch) = (shared.clone(), options.batch);
        std::thread::Builder::new().name("orlop-audit-log".into()).spawn(move || {
            write_batches(&queue, batch, &mut output, &progress);
            progress.send_modify(|progress| progress.ended = true);
        })?;
        Ok(Self { shared, written, options })
    }
}

impl Drop for LogBackend {
    fn drop(&mut self) {
        self.shared.queue().closed = true;
        self.shared.filled.notify_one();
    }
}

impl Backend for LogBackend {
    fn offer(&self, event: Bytes) -> Ticket {
        let mut queue = self.shared.queue();
        let full = queue.lines.len() + event.len() > BUFFER_BYTES_MAX && queue.events > 0
            || queue.events >= self.options.batch.buffer_events_max;
        if full || queue.closed {
            drop(queue);
            self.shared.metrics.lost(Plugin::Buffered, 1);
            return Ticket::Done(false);
        }
        queue.lines.extend_from_slice(&event);
        queue.lines.push(b'\n');
        queue.events += 1;
        queue.last += 1;
        let number = queue.last;
        drop(queue);
        self.shared.filled.notify_one();
        if self.options.batch.mode == Mode::Batch {
            return Ticket::Done(true);
        }
        let mut written = self.written.clone();
        Ticket::Pending(Box::pin(async move {
            let reached = written.wait_for(|progress| progress.done >= number || progress.ended).await;
            reached.is_ok_and(|progress| progress.done >= number && progress.lost < number)
        }))
    }

    fn is_strict(&self) -> bool {
        self.options.batch.mode == Mode::BlockingStrict
    }

    fn is_legacy(&self) -> bool {
        self.options.format == Format::Legacy
    }

    fn event_bytes_max(&self) -> Option<usize> {
        self.options.truncate.map(|truncate| truncate.event_bytes_max)
    }

    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.shared.queue().closed = true;
        self.shared.filled.notify_one();
        let mut written = self.written.clone();
        Box::pin(async move {
            let ended = async { written.wait_for(|progress| progress.ended).await.is_ok() };
            if tokio::time::timeout(CLOSE_MAX, ended).await.is_err() {
                tracing::warn!("the audit log was not written completely when the server stopped");
            }
        })
    }
}

impl Queue {
    /// Moves the first events to `lines`, at most `events_max`. Returns their number and that of the last one.
    fn take(&mut self, events_max: usize, lines: &mut Vec<u8>) -> (usize, u64) {
        if self.events <= events_max {
            std::mem::swap(lines, &mut self.lines);
            return (std::mem::take(&mut self.events), self.last);
        }
        let ends = self.lines.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        let end = ends.map(|(index, _)| index + 1).nth(events_max - 1).unwrap_or(self.lines.len());
        lines.extend(self.lines.drain(..end));
        self.events -= events_max;
        (events_max, self.last - self.events as u64)
    }
}

/// Waits for a batch. Returns the number of its events and that of the last one; `None` once the backend closed.
fn next_batch(shared: &Shared, batch: BatchOptions, lines: &mut Vec<u8>) -> Option<(usize, u64)> {
    let is_batch = batch.mode == Mode::Batch;
    let events_max = if is_batch { batch.batch_events_max.max(1) } else { usize::MAX };
    let mut queue = shared.queue();
    while queue.events == 0 {
        if queue.closed {
            return None;
        }
        queue = shared.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
    }
    let deadline = Instant::now() + batch.batch_wait_max.min(WAIT_MAX);
    while is_batch && queue.events < events_max && !queue.closed {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        queue = shared.filled.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
    }
    Some(queue.take(events_max, lines))
}

/// Writes batches until the backend closes.
fn write_batches(
    shared: &Shared,
    batch: BatchOptions,
    output: &mut Output,
    progress: &watch::Sender<Progress>,
) {
    let mut lines = Vec::new();
    let mut bucket = batch.throttle.filter(|_| batch.mode == Mode::Batch).map(TokenBucket::new);
    loop {
        lines.clear();
        let Some((events, last)) = next_batch(shared, batch, &mut lines) else { return };
        if let Some(bucket) = &mut bucket {
            let pause = bucket.reserve();
            // The rest is written at once when the server stops.
            let is_open = |queue: &mut Queue| !queue.closed;
            drop(shared.filled.wait_timeout_while(shared.queue(), pause, is_open));
        }
        let written = output.append(&lines);
        if let Err(error) = &written {
            tracing::error!(%error, events, "cannot write to the audit log: events are lost");
            shared.metrics.lost(Plugin::Log, events as u64);
        }
        progress.send_modify(|progress| {
            progress.done = last;
            if written.is_err() {
                progress.lost = last;
            }
        });
        if lines.capacity() > 4 << 20 {
            lines = Vec::new();
        }
    }
}

#[derive(Debug)]
enum Output {
    Stdout,
    File(Box<RotatingFile>),
}

impl Output {
    fn open(options: &LogOptions) -> io::Result<Self> {
        if options.path.as_os_str() == "-" {
            return Ok(Self::Stdout);
        }
        RotatingFile::open(&options.path, options.rotation).map(|file| Self::File(Box::new(file)))
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(lines)?;
                stdout.flush()
            }
            Self::File(file) => file.append(lines),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(path: PathBuf, mode: Mode, buffer_events_max: usize) -> LogOptions {
        let batch = BatchOptions {
            mode,
            buffer_events_max,
            batch_events_max: 1,
            batch_wait_max: Duration::ZERO,
            throttle: None,
        };
        LogOptions { path, rotation: RotationOptions::default(), format: Format::Json, batch, truncate: None }
    }

    #[tokio::test]
    async fn blocking_event_is_in_the_file_when_its_ticket_resolves() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let metrics = Metrics::default();
        let log = LogBackend::open(options(path.clone(), Mode::Blocking, 100), metrics).unwrap();
        let Ticket::Pending(written) = log.offer(Bytes::from_static(b"{}")) else { panic!("blocks") };
        assert!(written.await);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{}\n");
        log.close().await;
        assert!(matches!(log.offer(Bytes::from_static(b"{}")), Ticket::Done(false)), "closed");
    }

    #[tokio::test]
    async fn queued_events_are_written_in_order_before_close_returns() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let log = LogBackend::open(options(path.clone(), Mode::Batch, 10_000), Metrics::default()).unwrap();
        let expected: String = (0..1000).map(|number| format!("{number}\n")).collect();
        for number in 0..1000 {
            assert!(matches!(log.offer(number.to_string().into()), Ticket::Done(true)));
        }
        log.close().await;
        assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
    }

    #[tokio::test]
    async fn batches_are_limited_in_size_and_rate_and_complete_on_close() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let mut limited = options(path.clone(), Mode::Batch, 100);
        limited.batch.batch_events_max = 3;
        limited.batch.batch_wait_max = Duration::from_secs(3600);
        limited.batch.throttle = Some(super::super::Throttle { qps: 1e-3, burst: 2 });
        let log = LogBackend::open(limited, Metrics::default()).unwrap();
        for number in 0..10 {
            assert!(matches!(log.offer(number.to_string().into()), Ticket::Done(true)));
        }
        // The burst is written at once: two batches. The third waits for its turn, the last event for company.
        let mut written = log.written.clone();
        written.wait_for(|progress| progress.done >= 6).await.unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "0\n1\n2\n3\n4\n5\n");
        log.close().await;
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    }

    #[tokio::test]
    async fn full_queue_drops_and_counts() {
        let metrics = Metrics::default();
        let folder = tempfile::tempdir().unwrap();
        let log =
            LogBackend::open(options(folder.path().join("a"), Mode::Batch, 0), metrics.clone()).unwrap();
        assert!(matches!(log.offer(Bytes::from_static(b"{}")), Ticket::Done(false)));
        assert_eq!(metrics.losses(Plugin::Buffered), 1);
    }

    #[tokio::test]
    async fn failed_write_is_counted_and_reported() {
        let metrics = Metrics::default();
        let full = options(PathBuf::from("/dev/full"), Mode::BlockingStrict, 100);
        let log = LogBackend::open(full, metrics.clone()).unwrap();
        let Ticket::Pending(written) = log.offer(Bytes::from_static(b"{}")) else { panic!("blocks") };
        assert!(!written.await);
        assert_eq!(metrics.losses(Plugin::Log), 1);
        assert!(log.is_strict());
    }
}
