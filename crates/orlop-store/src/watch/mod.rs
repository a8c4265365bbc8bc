//! Watching: from a commit to those who asked for it.
//!
//! The writer (and, where other processes write too, a follower of the log) publishes commits to the
//! [`Hub`], which keeps the recent ones in a bounded ring. A dispatcher hands each to the watchers whose
//! range it touches; [`Matcher`] finds those without asking the others. A watcher that does not keep up
//! loses its queue, not its place: it reads on from the ring, or from the tables, until it has caught up.
//! Nobody waits for a watcher, and a watcher costs a bounded queue of shared commits.

mod hub;
mod matcher;
mod watcher;

pub(crate) use hub::Hub;
pub use watcher::{Watch, WatchBatch, WatchEvent, Watcher};
