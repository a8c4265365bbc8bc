//! Runs busy connections on threads of their own, at a lower scheduling priority.
//!
//! The runtime's queue of tasks is first in, first out: behind a few dozen connections that each have a megabyte to
//! encrypt, a small request waits for all of them. The kernel preempts threads, so a connection that takes more than its
//! share of processor time is moved to threads that the kernel gives less to, with its requests and their reads. It comes
//! back once it has been quiet for a while. While nobody else needs the processors, it is as fast there.
//!
//! Until it counts as busy, a connection writes for half a millisecond at a time.
//!
//! A thread that wakes up does not preempt another within its time slice, whatever their niceness. So while quiet
//! connections have requests too, busy ones leave a processor free.
//!
//! The kernel would preempt the threads at once if they were of SCHED_IDLE. But these get next to nothing while
//! another program computes: a list beside a compiler would not end.

use std::{
    cell::Cell,
    future::Future,
    panic::resume_unwind,
    pin::Pin,
    sync::{
        Arc, LazyLock, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
    thread::available_parallelism,
    time::{Duration, Instant},
};

use tokio::{
    runtime::{Builder, Handle, Runtime},
    task::JoinHandle,
    task_local,
};

use crate::erased::Served;

/// Niceness of the threads of busy connections.
const NICENESS: i32 = 5;
/// Maximum number of these threads, and of those on which their requests block.
const THREADS_MAX: usize = 4;
const BLOCKING_THREADS_MAX: usize = 8;
/// Interval over which processor time is counted.
const WINDOW: Duration = Duration::from_millis(50);
/// Time in an interval from which a connection is busy.
const BUSY: Duration = Duration::from_millis(5);
/// Interval after which a busy connection may be quiet, and the time that it may take in it.
const QUIET_WINDOW: Duration = Duration::from_secs(5);
const QUIET: Duration = Duration::from_millis(100);

/// Time for which a processor is left free after a request of a quiet connection, and the interval of looking.
const FREE_FOR: Duration = Duration::from_millis(50);
const FREE_CHECK: Duration = Duration::from_millis(5);

/// Time after which a quiet connection that has more to write lets others go first.
const TURN: Duration = Duration::from_micros(500);

thread_local! {
    static IS_BUSY_THREAD: Cell<bool> = const { Cell::new(false) };
    /// End of the turn of the quiet connection that is being polled.
    static TURN_ENDS: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Returns true if the connection that is being polled should let others go first.
pub(crate) fn is_turn_over() -> bool {
    TURN_ENDS.get().is_some_and(|end| Instant::now() >= end)
}

/// Returns true on a thread of busy connections. It may block: others serve the quiet ones.
pub fn is_busy_thread() -> bool {
    IS_BUSY_THREAD.get()
}

/// The threads of busy connections, started when there is one. `None` if the kernel refuses them.
static THREADS: LazyLock<Option<Runtime>> = LazyLock::new(|| {
    Builder::new_multi_thread()
        .worker_threads(processors().min(THREADS_MAX))
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name("orlop-busy")
        .enable_all()
        .on_thread_start(|| {
            IS_BUSY_THREAD.set(true);
            if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
                tracing::debug!(%error, "busy connections run at the usual priority");
            }
        })
        .build()
        .inspect_err(|error| tracing::warn!(%error, "busy connections have no threads of their own"))
        .ok()
});

fn processors() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// Leaves a processor to quiet connections while there are any.
struct Reservation {
    busy_tasks: AtomicUsize,
    /// Milliseconds after `epoch` at which a quiet connection was last driven.
    quiet_at: AtomicU64,
    is_held: AtomicBool,
    epoch: Instant,
    /// True if the threads could occupy all processors, and one of them can be spared.
    is_needed: bool,
}

static RESERVATION: LazyLock<Reservation> = LazyLock::new(|| Reservation {
    busy_tasks: AtomicUsize::new(0),
    quiet_at: AtomicU64::new(0),
    is_held: AtomicBool::new(false),
    epoch: Instant::now(),
    is_needed: (2..=THREADS_MAX).contains(&processors()),
});

impl Reservation {
    /// Records that a quiet connection is driven.
    fn note_quiet(&'static self, now: Instant) {
        if !self.is_needed || self.busy_tasks.load(Relaxed) == 0 {
            return;
        }
        self.quiet_at.store(self.milliseconds(now), Relaxed);
        if !self.is_held.swap(true, Relaxed)
            && let Some(threads) = &*THREADS
        {
            threads.spawn(async { self.hold() });
        }
    }

    /// Occupies the thread, which is what keeps it from the processor.
    fn hold(&self) {
        let free_for = u64::try_from(FREE_FOR.as_millis()).unwrap_or(u64::MAX);
        loop {
            std::thread::sleep(FREE_CHECK);
            let quiet_until = self.quiet_at.load(Relaxed).saturating_add(free_for);
            if self.milliseconds(Instant::now()) > quiet_until || self.busy_tasks.load(Relaxed) == 0 {
                self.is_held.store(false, Relaxed);
                return;
            }
        }
    }

    fn milliseconds(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.epoch).as_millis()).unwrap_or(u64::MAX)
    }
}

/// Counts a task of a busy connection while it exists.
struct Counted(&'static Reservation);

impl Counted {
    fn new(reservation: &'static Reservation) -> Self {
        reservation.busy_tasks.fetch_add(1, Relaxed);
        Self(reservation)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.busy_tasks.fetch_sub(1, Relaxed);
    }
}

task_local! {
    /// Share of the connection that is being driven.
    static SHARE: Arc<Share>;
}

/// Drives a connection to its end.
pub(crate) async fn drive(connection: Served) {
    let share = Arc::new(Share::new(Handle::current()));
    let scoped = Box::pin(SHARE.scope(share.clone(), connection));
    run(scoped, share).await;
}

/// Spawns a request of the connection that is being driven. Its time counts as the connection's, and it moves with it.
pub(crate) fn spawn(request: Served) {
    match SHARE.try_with(Arc::clone) {
        Ok(share) => drop(share.home.clone().spawn(run(request, share))),
        Err(_) => drop(tokio::spawn(request)),
    }
}

/// Runs a future to its end, on the threads for its connection's load. It ends with this task, which is of the runtime
/// whose timers and sockets it uses.
async fn run(mut future: Served, share: Arc<Share>) {
    loop {
        let Some(busy) = Metered::new(future, share.clone(), Load::Quiet).await else { return };
        let Some(threads) = &*THREADS else { return busy.await };
        let _counted = Counted::new(&RESERVATION);
        let mut running = AbortOnDrop(threads.spawn(Metered::new(busy, share.clone(), Load::Busy)));
        future = match (&mut running.0).await {
            Ok(Some(quiet)) => quiet,
            Ok(None) => return,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The threads have ended.
                Err(_) => return,
            },
        };
    }
}

/// A task that ends with its owner.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Load that a connection causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Quiet,
    Busy,
}

/// Share of processor time that a connection and its requests take.
struct Share {
    /// The runtime of the connection while it is quiet.
    home: Handle,
    is_busy: AtomicBool,
    meter: Mutex<Meter>,
}

impl Share {
    fn new(home: Handle) -> Self {
        Self { home, is_busy: AtomicBool::new(false), meter: Mutex::new(Meter::new(Instant::now())) }
    }

    fn load(&self) -> Load {
        if self.is_busy.load(Relaxed) { Load::Busy } else { Load::Quiet }
    }

    /// Counts a poll.
    fn record(&self, started: Instant, now: Instant) {
        let mut meter = self.meter.lock().unwrap_or_else(PoisonError::into_inner);
        let load = meter.record(started, now, self.load());
        self.is_busy.store(load == Load::Busy, Relaxed);
    }
}

/// A connection or a request of one, whose processor time is counted. It is returned once it has to move, and not if it
/// has ended.
struct Metered {
    future: Option<Served>,
    share: Arc<Share>,
    /// Load for which the present threads are.
    place: Load,
}

impl Metered {
    fn new(future: Served, share: Arc<Share>, place: Load) -> Self {
        Self { future: Some(future), share, place }
    }
}

impl Future for Metered {
    type Output = Option<Served>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.share.load() != self.place {
            return Poll::Ready(self.future.take());
        }
        let place = self.place;
        let Some(future) = &mut self.future else { return Poll::Ready(None) };
        let started = Instant::now();
        if place == Load::Quiet {
            RESERVATION.note_quiet(started);
            TURN_ENDS.set(Some(started + TURN));
        }
        let polled = future.as_mut().poll(cx);
        TURN_ENDS.set(None);
        self.share.record(started, Instant::now());
        if polled.is_ready() {
            return Poll::Ready(None);
        }
        if self.share.load() == place { Poll::Pending } else { Poll::Ready(self.future.take()) }
    }
}

/// Time that a connection has taken in an interval.
#[derive(Debug)]
struct Meter {
    since: Instant,
    taken: Duration,
}

impl Meter {
    fn new(now: Instant) -> Self {
        Self { since: now, taken: Duration::ZERO }
    }

    /// Counts a poll. Returns the load, which was `load` until now.
    fn record(&mut self, started: Instant, now: Instant, load: Load) -> Load {
        self.taken += now.saturating_duration_since(started);
        let elapsed = now.saturating_duration_since(self.since);
        let (is_changed, window) = match load {
            // What was taken long ago counts for nothing.
            Load::Quiet => (self.taken >= BUSY && elapsed < WINDOW * 2, WINDOW),
            Load::Busy => (elapsed >= QUIET_WINDOW && self.taken < QUIET, QUIET_WINDOW),
        };
        if elapsed >= window || is_changed {
            *self = Self::new(now);
        }
        match (load, is_changed) {
            (Load::Quiet, true) => Load::Busy,
            (Load::Busy, true) => Load::Quiet,
            (load, false) => load,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: Duration = Duration::from_millis(2);

    #[test]
    fn load_follows_the_share_of_time() {
        let mut now = Instant::now();
        let mut poll = |meter: &mut Option<Meter>, pause: Duration, load| {
            let meter = meter.get_or_insert_with(|| Meter::new(now));
            let started = now + pause;
            now = started + SOME;
            meter.record(started, now, load)
        };
        let mut meter = None;
        // 2 of 42 ms each: a twentieth.
        for _ in 0..100 {
            assert_eq!(poll(&mut meter, Duration::from_millis(40), Load::Quiet), Load::Quiet);
        }
        let polls = (0..100).take_while(|_| poll(&mut meter, SOME, Load::Quiet) == Load::Quiet).count();
        assert!(polls < 50, "{polls}");
        meter = None;
        for _ in 0..1000 {
            assert_eq!(poll(&mut meter, SOME, Load::Busy), Load::Busy);
        }
        let mut polls = (0..100).map(|_| poll(&mut meter, Duration::from_millis(400), Load::Busy));
        assert!(polls.any(|load| load == Load::Quiet));
    }

    #[tokio::test]
    async fn busy_connection_moves_to_other_threads_and_back() {
        let name = || std::thread::current().name().unwrap_or_default().to_owned();
        let (sent, mut threads) = tokio::sync::mpsc::unbounded_channel();
        let connection = async move {
            let here = name();
            let mut work = Duration::from_millis(3);
            let mut was_elsewhere = false;
            loop {
                std::thread::sleep(work);
                tokio::task::yield_now().await;
                if name() != here {
                    was_elsewhere = true;
                    work = Duration::ZERO;
                    tokio::time::sleep(Duration::from_millis(100)).await;
                } else if was_elsewhere {
                    let _ = sent.send(());
                    std::future::pending::<()>().await;
                }
            }
        };
        let driven = tokio::spawn(drive(Box::pin(connection)));
        tokio::time::timeout(Duration::from_secs(60), threads.recv()).await.unwrap().unwrap();
        driven.abort();
    }

    #[tokio::test]
    async fn request_counts_as_its_connection_and_moves_with_it() {
        let (sent, mut moved) = tokio::sync::mpsc::unbounded_channel();
        let request = |work: Duration, sent: Option<tokio::sync::mpsc::UnboundedSender<bool>>| async move {
            loop {
                std::thread::sleep(work);
                tokio::task::yield_now().await;
                if is_busy_thread() {
                    sent.map(|sent| sent.send(true));
                    return;
                }
            }
        };
        let connection = async move {
            // The one makes the connection busy, the other does next to nothing.
            spawn(Box::pin(request(Duration::from_millis(3), None)));
            spawn(Box::pin(request(Duration::ZERO, Some(sent))));
            std::future::pending::<()>().await;
        };
        let driven = tokio::spawn(drive(Box::pin(connection)));
        tokio::time::timeout(Duration::from_secs(60), moved.recv()).await.unwrap().unwrap();
        driven.abort();
    }

    #[test]
    fn request_ends_with_the_runtime_whose_timers_it_uses() {
        struct End(std::sync::mpsc::Sender<bool>);
        impl Drop for End {
            fn drop(&mut self) {
                let _ = self.0.send(std::thread::panicking());
            }
        }
        let (moved, has_moved) = std::sync::mpsc::channel();
        let (ended, end) = std::sync::mpsc::channel();
        let connection = async move {
            let request = async move {
                let _end = End(ended);
                loop {
                    std::thread::sleep(Duration::from_millis(1));
                    tokio::time::sleep(Duration::from_micros(10)).await;
                    if is_busy_thread() {
                        let _ = moved.send(());
                    }
                }
            };
            spawn(Box::pin(request));
            std::future::pending::<()>().await;
        };
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.spawn(drive(Box::pin(connection)));
        has_moved.recv_timeout(Duration::from_secs(60)).unwrap();
        drop(runtime);
        assert_eq!(end.recv_timeout(Duration::from_secs(60)), Ok(false), "it did not end by a panic");
    }

    #[tokio::test]
    async fn quiet_connection_has_turns() {
        let (sent, turn) = tokio::sync::oneshot::channel();
        let connection = async move {
            let at_first = is_turn_over();
            std::thread::sleep(TURN);
            let later = is_turn_over();
            tokio::task::yield_now().await;
            let _ = sent.send((at_first, later, is_turn_over()));
        };
        drive(Box::pin(connection)).await;
        assert_eq!(turn.await, Ok((false, true, false)));
        assert!(!is_turn_over(), "outside of a connection there are no turns");
    }

    #[tokio::test]
    async fn connection_ends_with_its_task() {
        let (sent, dropped) = tokio::sync::oneshot::channel::<()>();
        let connection = async move {
            let _sent = sent;
            loop {
                std::thread::sleep(Duration::from_millis(1));
                tokio::task::yield_now().await;
            }
        };
        let driven = tokio::spawn(drive(Box::pin(connection)));
        tokio::time::sleep(Duration::from_millis(50)).await;
        driven.abort();
        tokio::time::timeout(Duration::from_secs(60), dropped).await.unwrap().unwrap_err();
    }
}
