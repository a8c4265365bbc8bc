//! Futures whose parts wake each other.
//!
//! A connection and whoever waits for its answers are driven by one task, and each wakes that task whenever it hands
//! the other something. The runtime takes this for work that is left: it polls the task again in vain, and wakes
//! another thread to help, which costs more than a small statement. So such wakes stay within: they only have the
//! future polled once more on the spot. A wake from elsewhere is passed on.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures_util::task::AtomicWaker;

/// How often a future is polled in a row. One that still has itself woken is left to the runtime, which may be holding
/// it up so that others get their turn.
const POLLS: usize = 3;

/// Does as the future does.
pub(super) async fn undisturbed<F: Future>(future: F) -> F::Output {
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(bell.clone());
    let mut future = pin!(future);
    poll_fn(|context| {
        bell.task.register(context.waker());
        for _ in 0..POLLS {
            bell.polling.store(true, Ordering::SeqCst);
            bell.rung.store(false, Ordering::SeqCst);
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                // What keeps the waker rings for nobody now.
                bell.task.take();
                return Poll::Ready(output);
            }
            // In this order: who rings looks the other way round, so that one of the two sees the other.
            bell.polling.store(false, Ordering::SeqCst);
            if !bell.rung.load(Ordering::SeqCst) {
                return Poll::Pending;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

#[derive(Default)]
struct Bell {
    task: AtomicWaker,
    polling: AtomicBool,
    rung: AtomicBool,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::SeqCst);
        if !self.polling.load(Ordering::SeqCst) {
            self.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicUsize, time::Duration};

    use super::*;

    /// Counts how often a task is woken.
    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A future that wakes itself `times` times before it is done.
    async fn restless(mut times: usize) {
        poll_fn(move |context| {
            if times == 0 {
                return Poll::Ready(());
            }
            times -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    #[test]
    fn a_wake_from_within_does_not_reach_the_task() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let mut future = pin!(undisturbed(restless(2)));
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
        assert_eq!(count.0.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_future_that_does_not_stop_is_left_to_the_task() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let mut future = pin!(undisturbed(restless(usize::MAX)));
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn no_wake_from_elsewhere_is_lost() {
        for n in 0..10_000_u32 {
            let (send, receive) = tokio::sync::oneshot::channel();
            tokio::spawn(async move {
                let _ = send.send(n);
            });
            let waited = tokio::time::timeout(Duration::from_secs(60), undisturbed(receive));
            assert_eq!(waited.await.expect("the wake came"), Ok(n));
        }
    }
}
