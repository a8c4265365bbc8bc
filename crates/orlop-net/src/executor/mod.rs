//! Executors for the requests of an HTTP/2 connection.
//!
//! hyper hands every HTTP/2 request to an executor as a future. Both of these spare the wake-ups of a task for each.

mod connection_task;
mod inline;

pub(crate) use connection_task::ConnectionTask;
pub(crate) use inline::Inline;
