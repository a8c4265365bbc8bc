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
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use hyper::rt::Executor;
use tokio::task::coop;

/// What one of the 128 steps of a task's turn is worth: two milliseconds and a half are a turn.
const STEP: Duration = Duration::from_micros(20);

/// Runs futures in place up to where they first wait, and from there on as tasks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InPlace;

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
        spend(started.elapsed());
        // What panics ends alone, as a task would.
        if begun.is_ok_and(|polled| polled.is_pending()) {
            tokio::spawn(future);
        }
    }
}

/// Takes a time from the turn of the task that runs.
fn spend(time: Duration) {
    let steps = 1 + time.as_nanos() / STEP.as_nanos();
    for _ in 0..steps {
        match coop::poll_proceed(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(step) => step.made_progress(),
            Poll::Pending => return,
        }
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
        let steps = Arc::new(AtomicU32::new(0));
        let (counted, counted_too) = (steps.clone(), steps.clone());
        InPlace.execute(async move {
            counted.fetch_add(1, SeqCst);
        });
        assert_eq!(steps.load(SeqCst), 1);
        let (go, gone) = oneshot::channel();
        let (done, ended) = oneshot::channel();
        InPlace.execute(async move {
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
        let done = Arc::new(AtomicU32::new(0));
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
        InPlace.execute(request(STEP * 200));
        assert_eq!(done.load(SeqCst), 1);
        InPlace.execute(request(Duration::ZERO));
        assert_eq!(done.load(SeqCst), 1, "it waits for its own turn");
        while done.load(SeqCst) < 2 {
            tokio::task::yield_now().await;
        }
        InPlace.execute(request(Duration::ZERO));
        assert_eq!(done.load(SeqCst), 3);
    }

    #[tokio::test]
    async fn what_panics_ends_alone() {
        InPlace.execute(async { panic!("on purpose") });
    }
}
