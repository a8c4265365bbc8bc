//! The log backend: one line an event.
//!
//! Requests append their line to a buffer in memory; whoever holds the output takes the whole buffer and writes it at
//! once. In the blocking modes a request that waits for its line writes it itself if the output is a local file and
//! nobody writes at the moment: two wake-ups of threads cost ten times as much as the write. A thread writes what
//! nobody waits for, and everything if the output may block: a pipe, a network file system, a disk that was slow.

use std::{
    io::{self, Write},
    path::PathBuf,
    pin::Pin,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError},
    time::{Duration, Instant},
};

use tokio::sync::watch;

use super::{
    Backend, BatchOptions, Delivery, Mode, Ticket, TruncateOptions,
    rotation::{RotatingFile, RotationOptions},
    throttle::TokenBucket,
};
use crate::metrics::{Metrics, Plugin};

/// Bytes of events that wait for the disk.
const BUFFER_BYTES_MAX: usize = 64 << 20;
/// Longest time that an event waits for others in batch mode.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Time that an event nobody waits for is kept for the next write, in the blocking modes.
const LINGER: Duration = Duration::from_millis(20);
/// Time to write what is queued when the server stops.
const CLOSE_MAX: Duration = Duration::from_secs(10);
/// A write that takes longer leaves the disk to the thread for [`SLOW_PAUSE_FACTOR`] times as long, so that requests
/// spend at most a tenth of their time on a slow disk. A worker that was preempted in between looks like one, too: on a
/// busy machine for some milliseconds, which must not end writing in place for long.
const SLOW_MIN: Duration = Duration::from_millis(20);
const SLOW_PAUSE_FACTOR: u32 = 10;
const SLOW_PAUSE_MAX: Duration = Duration::from_secs(10);
/// Times that a request writes the events of others that came while it wrote.
const ROUNDS_MAX: usize = 3;
/// Capacity of the buffer that is kept.
const LINES_BYTES_KEPT: usize = 4 << 20;

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
    options: LogOptions,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    /// Wakes the thread.
    wake: Condvar,
    /// Locked before the queue: events are written in the order of the queue.
    output: Mutex<Output>,
    /// True if requests may write themselves.
    in_place: bool,
    progress: watch::Sender<Progress>,
    metrics: Metrics,
}

#[derive(Debug, Default)]
struct Queue {
    lines: Vec<u8>,
    events: usize,
    /// Number of the last event that was queued.
    last: u64,
    due: Due,
    closed: bool,
}

/// Time at which the thread writes what is queued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    #[default]
    Never,
    Soon,
    Now,
}

/// Progress of writing.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// Number of the last event that was written or lost.
    done: u64,
    /// Number of the last event that was lost.
    lost: u64,
    /// Set when the thread has ended.
    ended: bool,
}

impl Progress {
    fn has_written(&self, number: u64) -> bool {
        self.done >= number && self.lost < number
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the thread write what is queued.
    fn wake(&self, mut queue: MutexGuard<'_, Queue>, due: Due) {
        let wakes = due > queue.due;
        queue.due = queue.due.max(due);
        drop(queue);
        if wakes {
            self.wake.notify_one();
        }
    }

    /// Writes all that is queued, unless another writes or the disk is slow. Then the thread, or whoever writes, does.
    fn write_in_place(&self) {
        for _ in 0..ROUNDS_MAX {
            let mut output = match self.output.try_lock() {
                Ok(output) => output,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                // Its holder looks at the queue again after it has unlocked.
                Err(TryLockError::WouldBlock) => return,
            };
            let started = Instant::now();
            if output.slow_until.is_some_and(|until| started < until) {
                break;
            }
            self.write_queued(&mut output, usize::MAX);
            let took = started.elapsed();
            let pause = took.saturating_mul(SLOW_PAUSE_FACTOR).min(SLOW_PAUSE_MAX);
            output.slow_until = (took > SLOW_MIN).then(|| Instant::now() + pause);
            drop(output);
            if self.queue().events == 0 {
                return;
            }
        }
        self.wake(self.queue(), Due::Now);
    }

    /// Writes the event of a number and those before it: here if that can be, else by the thread.
    fn write(&self, queue: MutexGuard<'_, Queue>, number: u64) -> Ticket {
        let done = || {
            let progress = *self.progress.borrow();
            (progress.done >= number).then(|| Ticket::Done(progress.has_written(number)))
        };
        if queue.events == 0
            && let Some(done) = done()
        {
            return done;
        }
        if self.in_place {
            drop(queue);
            self.write_in_place();
            if let Some(done) = done() {
                return done;
            }
        } else {
            self.wake(queue, Due::Now);
        }
        let mut progress = self.progress.subscribe();
        Ticket::Pending(Box::pin(async move {
            let reached = progress.wait_for(|progress| progress.done >= number || progress.ended).await;
            reached.is_ok_and(|progress| progress.has_written(number))
        }))
    }

    /// Writes the first events of the queue.
    fn write_queued(&self, output: &mut Output, events_max: usize) {
        let Output { file, lines, .. } = output;
        let (events, last) = self.queue().take(events_max, lines);
        if events == 0 {
            return;
        }
        let written = file.append(lines);
        if let Err(error) = &written {
            tracing::error!(%error, events, "cannot write to the audit log: events are lost");
            self.metrics.lost(Plugin::Log, events as u64);
        }
        self.progress.send_modify(|progress| {
            progress.done = last;
            if written.is_err() {
                progress.lost = last;
            }
        });
        lines.clear();
        if lines.capacity() > LINES_BYTES_KEPT {
            *lines = Vec::new();
        }
    }
}

impl LogBackend {
    /// Opens the file and starts the thread.
    pub fn open(options: LogOptions, metrics: Metrics) -> io::Result<Self> {
        let file = LogFile::open(&options)?;
        let in_place = options.batch.mode != Mode::Batch && file.is_local()?;
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            wake: Condvar::new(),
            output: Mutex::new(Output { file, lines: Vec::new(), slow_until: None }),
            in_place,
            progress: watch::Sender::new(Progress::default()),
            metrics,
        });
        let (thread, batch) = (shared.clone(), options.batch);
        std::thread::Builder::new().name("orlop-audit-log".into()).spawn(move || {
            write_batches(&thread, batch);
            thread.progress.send_modify(|progress| progress.ended = true);
        })?;
        Ok(Self { shared, options })
    }

    fn stop(&self) {
        self.shared.queue().closed = true;
        self.shared.wake.notify_one();
    }
}

impl Drop for LogBackend {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Backend for LogBackend {
    fn offer(&self, event: &[u8], delivery: Delivery) -> Ticket {
        let BatchOptions { mode, buffer_events_max, batch_events_max, .. } = self.options.batch;
        let waits = mode != Mode::Batch && delivery == Delivery::Awaited;
        let mut queue = self.shared.queue();
        let full = queue.lines.len() + event.len() > BUFFER_BYTES_MAX && queue.events > 0
            || queue.events >= buffer_events_max;
        if full || queue.closed {
            drop(queue);
            self.shared.metrics.lost(Plugin::Buffered, 1);
            return Ticket::Done(false);
        }
        queue.lines.extend_from_slice(event);
        queue.lines.push(b'\n');
        queue.events += 1;
        queue.last += 1;
        let number = queue.last;
        if waits {
            return self.shared.write(queue, number);
        }
        let is_whole_batch = mode == Mode::Batch && queue.events >= batch_events_max;
        self.shared.wake(queue, if is_whole_batch { Due::Now } else { Due::Soon });
        Ticket::Done(true)
    }

    fn flush(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        if self.options.batch.mode == Mode::Batch {
            return None;
        }
        let queue = self.shared.queue();
        let number = queue.last;
        match self.shared.write(queue, number) {
            Ticket::Done(_) => None,
            Ticket::Pending(written) => Some(Box::pin(async move {
                written.await;
            })),
        }
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
        self.stop();
        let mut progress = self.shared.progress.subscribe();
        Box::pin(async move {
            let ended = async { progress.wait_for(|progress| progress.ended).await.is_ok() };
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

/// Waits until the thread is to write. Returns false once the backend is closed and nothing is queued.
fn wait_until_due(shared: &Shared, delay: Duration) -> bool {
    let mut queue = shared.queue();
    while queue.due == Due::Never && !queue.closed {
        queue = shared.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
    }
    let is_early = |queue: &mut Queue| queue.due < Due::Now && !queue.closed;
    let waited = shared.wake.wait_timeout_while(queue, delay, is_early);
    queue = waited.unwrap_or_else(PoisonError::into_inner).0;
    queue.due = Due::Never;
    !queue.closed || queue.events > 0
}

/// Writes batches until the backend closes.
fn write_batches(shared: &Shared, batch: BatchOptions) {
    let is_batch = batch.mode == Mode::Batch;
    let (events_max, delay) = match is_batch {
        true => (batch.batch_events_max.max(1), batch.batch_wait_max.min(WAIT_MAX)),
        false => (usize::MAX, LINGER),
    };
    let mut bucket = batch.throttle.filter(|_| is_batch).map(TokenBucket::new);
    let mut last = 0;
    while wait_until_due(shared, delay) {
        if let Some(bucket) = &mut bucket {
            let pause = bucket.reserve();
            // The rest is written at once when the server stops.
            let is_open = |queue: &mut Queue| !queue.closed;
            drop(shared.wake.wait_timeout_while(shared.queue(), pause, is_open));
        }
        let mut output = shared.output.lock().unwrap_or_else(PoisonError::into_inner);
        shared.write_queued(&mut output, events_max);
        drop(output);
        let mut queue = shared.queue();
        let is_busy = std::mem::replace(&mut last, queue.last) != queue.last;
        match queue.events {
            // While events come the thread polls the queue, which spares requests the wake-up of a thread each.
            0 if is_busy && !is_batch => queue.due = queue.due.max(Due::Soon),
            0 => {}
            // A request may wait for an event that came while this thread wrote.
            events if !is_batch || events >= events_max => shared.wake(queue, Due::Now),
            _ => shared.wake(queue, Due::Soon),
        }
    }
}

/// The file, and the buffer of lines that are written to it.
#[derive(Debug)]
struct Output {
    file: LogFile,
    lines: Vec<u8>,
    /// End of the time in which only the thread writes.
    slow_until: Option<Instant>,
}

#[derive(Debug)]
enum LogFile {
    Stdout,
    File(Box<RotatingFile>),
}

impl LogFile {
    fn open(options: &LogOptions) -> io::Result<Self> {
        if options.path.as_os_str() == "-" {
            return Ok(Self::Stdout);
        }
        RotatingFile::open(&options.path, options.rotation).map(|file| Self::File(Box::new(file)))
    }

    /// Returns true if a write goes to the page cache of a local disk.
    fn is_local(&self) -> io::Result<bool> {
        match self {
            Self::Stdout => Ok(false),
            Self::File(file) => file.is_local(),
        }
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
    async fn blocking_event_is_in_the_file_when_it_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let metrics = Metrics::default();
        let log = LogBackend::open(options(path.clone(), Mode::Blocking, 100), metrics).unwrap();
        let ticket = log.offer(b"{}", Delivery::Awaited);
        assert!(matches!(ticket, Ticket::Done(true)), "a local file is written in place");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{}\n");
        log.close().await;
        assert!(matches!(log.offer(b"{}", Delivery::Awaited), Ticket::Done(false)), "closed");
    }

    #[tokio::test]
    async fn queued_events_are_written_in_order_before_close_returns() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let log = LogBackend::open(options(path.clone(), Mode::Batch, 10_000), Metrics::default()).unwrap();
        let expected: String = (0..1000).map(|number| format!("{number}\n")).collect();
        for number in 0..1000 {
            assert!(matches!(
                log.offer(number.to_string().as_bytes(), Delivery::Awaited),
                Ticket::Done(true)
            ));
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
            assert!(matches!(
                log.offer(number.to_string().as_bytes(), Delivery::Awaited),
                Ticket::Done(true)
            ));
        }
        // The burst is written at once: two batches. The third waits for its turn, the last event for company.
        let mut written = log.shared.progress.subscribe();
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
        assert!(matches!(log.offer(b"{}", Delivery::Awaited), Ticket::Done(false)));
        assert_eq!(metrics.losses(Plugin::Buffered), 1);
    }

    #[tokio::test]
    async fn failed_write_is_counted_and_reported() {
        let metrics = Metrics::default();
        let full = options(PathBuf::from("/dev/full"), Mode::BlockingStrict, 100);
        let log = LogBackend::open(full, metrics.clone()).unwrap();
        let Ticket::Pending(written) = log.offer(b"{}", Delivery::Awaited) else { panic!("blocks") };
        assert!(!written.await);
        assert_eq!(metrics.losses(Plugin::Log), 1);
        assert!(log.is_strict());
    }

    #[tokio::test]
    async fn detached_event_is_written_without_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let log = LogBackend::open(options(path.clone(), Mode::Blocking, 100), Metrics::default()).unwrap();
        assert!(matches!(log.offer(b"{}", Delivery::Detached), Ticket::Done(true)));
        let mut progress = log.shared.progress.subscribe();
        progress.wait_for(|progress| progress.done >= 1).await.unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{}\n");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn concurrent_events_are_written_once_and_in_order() {
        const WRITERS: usize = 8;
        const EVENTS: usize = 500;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let options = options(path.clone(), Mode::BlockingStrict, 1_000_000);
        let log = Arc::new(LogBackend::open(options, Metrics::default()).unwrap());
        let write = |writer: usize| {
            let log = log.clone();
            tokio::spawn(async move {
                for number in 0..EVENTS {
                    let detached = number % 3 == 0;
                    let delivery = if detached { Delivery::Detached } else { Delivery::Awaited };
                    let written = match log.offer(format!("{writer} {number}").as_bytes(), delivery) {
                        Ticket::Done(written) => written,
                        Ticket::Pending(written) => written.await,
                    };
                    assert!(written, "{writer} {number}");
                }
            })
        };
        for writer in (0..WRITERS).map(write).collect::<Vec<_>>() {
            writer.await.unwrap();
        }
        log.close().await;
        let text = std::fs::read_to_string(&path).unwrap();
        for writer in 0..WRITERS {
            let own = text.lines().filter_map(|line| line.strip_prefix(&format!("{writer} ")));
            assert!(own.eq((0..EVENTS).map(|number| number.to_string())), "events of writer {writer}");
        }
    }

    #[tokio::test]
    async fn reader_of_a_pipe_that_is_slow_delays_no_offer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
            .unwrap();
        let reader = std::thread::spawn({
            let path = path.clone();
            move || std::fs::File::open(path).unwrap()
        });
        let log = LogBackend::open(options(path, Mode::Blocking, 100), Metrics::default()).unwrap();
        let mut unread = reader.join().unwrap();
        // More than a pipe holds: the thread is stuck in its write.
        let large = vec![b'x'; 1 << 20];
        let Ticket::Pending(written) = log.offer(&large, Delivery::Awaited) else { panic!("waits") };
        let Ticket::Pending(next) = log.offer(&large, Delivery::Awaited) else { panic!("waits") };
        std::thread::spawn(move || io::copy(&mut unread, &mut io::sink()));
        assert!(written.await && next.await);
    }
}
