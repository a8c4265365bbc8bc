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
    time::Duration,
};

use bytes::Bytes;
use tokio::sync::watch;

use super::{
    Backend, BatchOptions, Mode, Ticket, TruncateOptions,
    rotation::{RotatingFile, RotationOptions},
};
use crate::metrics::{Metrics, Plugin};

/// Bytes of events that wait for the disk.
const BUFFER_BYTES_MAX: usize = 64 << 20;
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
    /// Mode and queue. A batch is whatever is queued when the last one is written.
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
        let queue = shared.clone();
        std::thread::Builder::new().name("orlop-audit-log".into()).spawn(move || {
            write_batches(&queue, &mut output, &progress);
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

/// Writes everything queued, again and again, until the backend closes.
fn write_batches(shared: &Shared, output: &mut Output, progress: &watch::Sender<Progress>) {
    let mut lines = Vec::new();
    loop {
        lines.clear();
        let (events, last) = {
            let mut queue = shared.queue();
            while queue.events == 0 {
                if queue.closed {
                    return;
                }
                queue = shared.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            std::mem::swap(&mut lines, &mut queue.lines);
            (std::mem::take(&mut queue.events), queue.last)
        };
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
