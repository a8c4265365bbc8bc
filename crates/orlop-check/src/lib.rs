//! Random workloads on the store, or on anything that serves it, and the proof that what came back is right.
//!
//! A [`Workload`] sends seeded requests through several [`Client`]s and records a [`History`]: every
//! operation with the moments it was invoked and answered, every watch with what it delivered. [`check`]
//! then looks for one explanation of all of it.
//!
//! The order of writes needs no search: each has a revision, so the history itself names its witness. It is
//! replayed on a sequential [`Model`], and each answer must be the model's. Only operations whose outcome
//! nobody knows (a caller gave up, a process was killed) are searched for, in the gaps they may have filled.
//!
//! Time is a counter, not a clock: what was answered before something else was invoked has the smaller
//! number, and that is all that linearizability asks.

mod client;
mod codec;
mod history;
mod linear;
mod model;
mod plan;
mod random;
mod timeline;
mod watching;
mod workload;

pub use client::{Answer, Batch, Client, Failure, Observed, WatchSpec, WatchStream};
pub use codec::{decode_outcome, encode_outcome};
pub use history::{Clock, Entry, History, Operation, Outcome, Request, WatchRecord};
pub use model::{Change, Model, Version};
pub use plan::{Hint, Plan, keys};
pub use random::{Random, seed};
pub use workload::{Known, Workload, ask};

/// Finds an explanation for a whole history, or says what cannot be explained.
pub fn check(history: &History) -> Result<Model, String> {
    let model = linear::check(history)?;
    watching::check(history, &model)?;
    Ok(model)
}
