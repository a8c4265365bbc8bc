//! Executors for the requests of an HTTP/2 connection.
//!
//! hyper hands every HTTP/2 request to an executor as a future. Both of these spare the wake-ups of a task for each.

mod connection_task;
mod inline;

use std::future::Future;

pub(crate) use connection_task::ConnectionTask;
use hyper::rt::Executor;
pub(crate) use inline::Inline;

/// Either executor.
#[derive(Clone)]
pub(crate) enum RequestExecutor {
    Inline(Inline),
    ConnectionTask(ConnectionTask),
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for RequestExecutor {
    fn execute(&self, future: F) {
        match self {
            Self::Inline(executor) => executor.execute(future),
            Self::ConnectionTask(executor) => executor.execute(future),
        }
    }
}
