//! Random workloads against the store or a server of it, and a checker of the resulting histories.
//!
//! A [`Workload`] sends seeded requests through several [`Client`]s and records a [`History`]: every
//! operation with the times of its invocation and response, every watch with what it delivered. [`check`] then looks
//! for one linearization of all of it.
//!
//! The order of writes needs no search: each has a revision. They are replayed on a sequential [`Model`], and each
//! result must equal the model's. Only operations of unknown outcome (a caller timed out, a process was killed) are
//! searched for, where a revision has no known author.
//!
//! Time is a logical counter: a response before another invocation has the smaller number, which is all that
//! linearizability needs.

mod client;
mod codec;
mod history;
mod linearizability;
mod model;
mod random;
mod requests;
mod timeline;
mod watches;
mod workload;

pub use client::{Answer, Batch, Client, Failure, Observed, WatchSpec, WatchStream};
pub use codec::{decode_outcome, encode_outcome};
pub use history::{Clock, Entry, History, Operation, Outcome, Request, WatchRecord};
pub use model::{Change, Model, Version};
pub use random::{Random, seed};
pub use requests::{Hint, RequestGenerator, keys};
pub use workload::{ClientState, Workload, send};

/// Checks a whole history. Returns the model at its end, or a description of the first violation.
pub fn check(history: &History) -> Result<Model, String> {
    let model = linearizability::check(history)?;
    watches::check(history, &model)?;
    Ok(model)
}
