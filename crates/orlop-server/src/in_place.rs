//! Requests begin where they are read.
//!
//! HTTP/2 gives each request a task. Most reads are answered without waiting for anything: for those a task would only
//! mean that another thread is woken, which then wakes the connection, which sends each answer by itself. So a
//! request runs at once, on the connection's own task, up to where it first has to wait; only what waits gets a
//! task. Answers to requests that came together then leave together.
//!
//! What they take in place counts as the connection's turn, so that one that asks for much does not keep the others
//! waiting: once it is used up, the runtime goes on with somebody else.

use std::{
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

/// What one of the 128 steps of a task's turn is worth: five milliseconds are a turn.
const STEP_NANOS: u64 = 40_000;

/// Runs futures in place up to where they first wait, and from there on as tasks.
#[derive(Clone, Debug, Default)]
pub(crate) struct InPlace {
    /// Nanoseconds that do not make a step yet.
    unspent: Arc<AtomicU64>,
}

impl<F> Executor<F> for InPlace
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        let mut future = Box::pin(future);
        if !coop::has_budget_remaining() {
            tokio::spawn(future);
            return;
        }
        let started = Instant::now();
        // Nobody need be woken: a task that is spawned looks for itself first.
        let mut context = Context::from_waker(Waker::noop());
        let begun = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context)));
        self.spend(started.elapsed());
        // What panics ends alone, as a task would.
        if begun.is_ok_and(|polled| polled.is_pending()) {
            tokio::spawn(future);
        }
    }
}

impl InPlace {
    /// Takes a time from the turn of the task that runs.
    fn spend(&self, time: Duration) {
        let mut unspent = self.unspent.load(Relaxed) + u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 2);
        while unspent >= STEP_NANOS {
            unspent -= STEP_NANOS;
            match coop::poll_proceed(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(step) => step.made_progress(),
                // The rest is forgiven.
                Poll::Pending => unspent = 0,
            }
        }
        self.unspent.store(unspent, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    };

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn what_need_not_wait_is_done_when_it_returns_and_what_waits_goes_on_as_a_task() {
        let requests = InPlace::default();
        let steps = Arc::new(AtomicU32::new(0));
        let (counted, counted_too) = (steps.clone(), steps.clone());
        requests.execute(async move {
            counted.fetch_add(1, SeqCst);
        });
        assert_eq!(steps.load(SeqCst), 1);
        let (go, gone) = oneshot::channel();
        let (done, ended) = oneshot::channel();
        requests.execute(async move {
            counted_too.fetch_add(1, SeqCst);
            let told: u32 = gone.await.unwrap();
            done.send(told).unwrap();
        });
        assert_eq!(steps.load(SeqCst), 2);
        go.send(7).unwrap();
        assert_eq!(ended.await, Ok(7));
    }

    #[tokio::test]
    async fn a_connection_whose_turn_is_over_makes_tasks_until_its_next() {
        let (requests, done) = (InPlace::default(), Arc::new(AtomicU32::new(0)));
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
        requests.execute(request(Duration::from_nanos(STEP_NANOS * 200)));
        assert_eq!(done.load(SeqCst), 1);
        requests.execute(request(Duration::ZERO));
        assert_eq!(done.load(SeqCst), 1, "it waits for its own turn");
        while done.load(SeqCst) < 2 {
            tokio::task::yield_now().await;
        }
        requests.execute(request(Duration::ZERO));
        assert_eq!(done.load(SeqCst), 3);
    }

    #[tokio::test]
    async fn what_panics_ends_alone() {
        InPlace::default().execute(async { panic!("on purpose") });
    }
}
