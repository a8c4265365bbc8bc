//! Runs every request of a connection on the connection's own task.
//!
//! A group commit completes many requests at once. With a task each, every response would wake its own task, and that
//! one the connection's. Here the commit wakes one task once: it completes all requests that are ready, then writes
//! their responses together.

use std::{
    future::Future,
    panic::AssertUnwindSafe,
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
};

use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};

type Request = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An executor whose requests run while [`ConnectionTask::drive`] polls the connection. Dropping that future cancels
/// them.
#[derive(Clone, Default)]
pub(crate) struct ConnectionTask {
    arrived: Arc<Mutex<Vec<Request>>>,
}

impl ConnectionTask {
    /// Polls a connection together with its requests.
    pub(crate) async fn drive<T>(self, connection: impl Future<Output = T>) -> T {
        let mut connection = pin!(connection);
        let mut running = FuturesUnordered::new();
        std::future::poll_fn(|cx| {
            loop {
                running.extend(self.lock().drain(..));
                while let Poll::Ready(Some(())) = running.poll_next_unpin(cx) {}
                if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                    return Poll::Ready(ended);
                }
                // Requests that this poll read from the socket may complete at once.
                if self.lock().is_empty() {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Request>> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for ConnectionTask {
    fn execute(&self, future: F) {
        // A panic ends its own stream and none of the connection's others.
        let guarded = AssertUnwindSafe(future).catch_unwind().map(drop);
        self.lock().push(Box::pin(guarded));
    }
}

#[cfg(test)]
mod tests {
    use hyper::rt::Executor;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn requests_run_while_the_connection_is_driven() {
        let executor = ConnectionTask::default();
        let (respond, response) = oneshot::channel();
        let requests = executor.clone();
        let connection = async move {
            requests.execute(async { panic!("on purpose") });
            requests.execute(async move {
                tokio::task::yield_now().await;
                let _ = respond.send(7);
            });
            response.await
        };
        assert_eq!(executor.drive(connection).await, Ok(7), "the panic ended its own request only");
    }

    #[tokio::test]
    async fn dropping_the_connection_cancels_its_requests() {
        let executor = ConnectionTask::default();
        let (held, mut released) = oneshot::channel::<()>();
        executor.execute(async move {
            std::future::pending::<()>().await;
            drop(held);
        });
        let driven = executor.drive(std::future::pending::<()>());
        assert!(tokio::time::timeout(std::time::Duration::from_millis(1), driven).await.is_err());
        assert_eq!(released.try_recv(), Err(oneshot::error::TryRecvError::Closed));
    }
}
