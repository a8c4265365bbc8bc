//! The runtime that every controller runs on: registration, leader election, work queues, metrics.
//!
//! A controller is a name and an async function that never returns; the [`Manager`] runs it while this
//! process holds its lease. Inside, watches feed a [`WorkQueue`], which coalesces items, runs them with
//! bounded concurrency and retries a failed one with exponential back-off of its own, so that one failing
//! object delays no other. Anything that is a future can be registered, a `kube::runtime::Controller` too.
//!
//! The queue keeps keys and no objects: memory does not grow with the number of objects in the cluster.

mod election;
mod events;
mod informer;
mod manager;
mod metrics;
mod selection;
mod work_queue;

pub use election::{LeaderElection, candidate_name};
pub use events::{EventForm, Recorder};
pub use informer::{Cached, Change, Informer, Informers, Key, Subscription};
pub use manager::{Context, Manager};
pub use metrics::Metrics;
pub use selection::{UnknownController, select};
pub use work_queue::{Action, WorkQueue};
