//! Runs a request on the connection's task until it first waits, and on a task of its own from there on.
//!
//! Most reads complete without waiting. A task for each would wake another thread, which wakes the connection, which
//! sends each response by itself. Inline, the responses to requests that arrived together leave together.
//!
//! The time spent inline is charged to the task's cooperative budget. A connection that has used it up gets tasks for
//! its requests until the runtime has polled other connections.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use hyper::rt::Executor;
use tokio::task::coop;

use crate::busy;

/// Time that one of the 128 units of a task's cooperative budget stands for: 5 ms for all of them.
const BUDGET_UNIT_NANOS: u64 = 40_000;

/// An executor that polls a future once in place and spawns it if it is pending.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inline {
    /// Nanoseconds that do not amount to a budget unit yet.
    uncharged_nanos: Arc<AtomicU64>,
}

impl<F> Executor<F> for Inline
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        let mut future = Box::pin(future);
        if !coop::has_budget_remaining() {
            busy::spawn(future);
            return;
        }
        let started = Instant::now();
        // No waker is needed: a spawned task is polled at least once.
        let mut context = Context::from_waker(Waker::noop());
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context)));
        self.charge(started.elapsed());
        // A panic ends its own request, as it would end a task.
        if polled.is_ok_and(|polled| polled.is_pending()) {
            busy::spawn(future);
        }
    }
}

impl Inline {
    /// Charges a duration to the current task's budget.
    fn charge(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 2);
        let mut uncharged = self.uncharged_nanos.load(Relaxed) + nanos;
        while uncharged >= BUDGET_UNIT_NANOS {
            uncharged -= BUDGET_UNIT_NANOS;
            match coop::poll_proceed(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(unit) => unit.made_progress(),
                // The budget is used up; the rest is not carried over.
                Poll::Pending => uncharged = 0,
            }
        }
        self.uncharged_nanos.store(uncharged, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn request_that_waits_for_nothing_completes_inline() {
        let polls = Arc::new(AtomicU32::new(0));
        let counter = polls.clone();
        Inline::default().execute(async move {
            counter.fetch_add(1, SeqCst);
        });
        assert_eq!(polls.load(SeqCst), 1);
    }

    #[tokio::test]
    async fn request_that_waits_continues_as_a_task() {
        let polls = Arc::new(AtomicU32::new(0));
        let counter = polls.clone();
        let (go, gone) = oneshot::channel();
        let (done, ended) = oneshot::channel();
        Inline::default().execute(async move {
            counter.fetch_add(1, SeqCst);
            let number: u32 = gone.await.unwrap();
            done.send(number).unwrap();
        });
        assert_eq!(polls.load(SeqCst), 1, "it began inline");
        go.send(7).unwrap();
        assert_eq!(ended.await, Ok(7));
    }

    #[tokio::test]
    async fn connection_without_budget_gets_tasks_until_its_next_poll() {
        let (executor, done) = (Inline::default(), Arc::new(AtomicU32::new(0)));
        let request = |time: Duration| {
            let done = done.clone();
            async move {
                let started = Instant::now();
                while started.elapsed() < time {
                    std::hint::spin_loop();
                }
                done.fetch_add(1, SeqCst);
            }
        };
        executor.execute(request(Duration::from_nanos(BUDGET_UNIT_NANOS * 200)));
        assert_eq!(done.load(SeqCst), 1);
        executor.execute(request(Duration::ZERO));
        assert_eq!(done.load(SeqCst), 1, "the second request got a task");
        while done.load(SeqCst) < 2 {
            tokio::task::yield_now().await;
        }
        executor.execute(request(Duration::ZERO));
        assert_eq!(done.load(SeqCst), 3);
    }

    #[tokio::test]
    async fn panicking_request_does_not_end_the_connection() {
        let (executor, done) = (Inline::default(), Arc::new(AtomicU32::new(0)));
        let held = done.clone();
        executor.execute(async move {
            let _dropped_by_the_panic = held;
            panic!("on purpose");
        });
        assert_eq!(Arc::strong_count(&done), 1, "the request is gone");
        // Printing a backtrace may use up the budget; the next poll has a new one.
        tokio::task::yield_now().await;
        let counter = done.clone();
        executor.execute(async move {
            counter.fetch_add(1, SeqCst);
        });
        assert_eq!(done.load(SeqCst), 1, "the next request runs");
    }
}
