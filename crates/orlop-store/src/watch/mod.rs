//! Watches: from a commit to the watchers whose range it touches.
//!
//! The writer publishes commits to the [`Hub`]. Where other processes write too, a task that tails the log
//! publishes theirs. The hub keeps recent commits in a bounded ring buffer, and its dispatcher enqueues each
//! commit to the watchers that [`WatcherIndex`](index::WatcherIndex) finds for its keys.
//!
//! A watcher never blocks the dispatcher. One whose queue overflows loses the queue, not its position: it reads
//! on from the ring buffer, or further back from segments of the log in the [`LogCache`](log_cache::LogCache),
//! which all watchers share.
//!
//! Memory is bounded by the ring buffer and the log cache, whatever the number of watchers. Queues hold weak
//! references to commits, so a watcher that nobody reads from pins none.

mod hub;
mod index;
mod log_cache;
mod subscription;
mod watcher;

pub(crate) use hub::Hub;
pub use subscription::Watch;
pub use watcher::{WatchBatch, WatchEvent, Watcher};
