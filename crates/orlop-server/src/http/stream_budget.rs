//! A budget for what streamed bodies hold for clients that do not read.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;

/// Bytes that all streamed bodies may hold before clients that do not read lose their patience.
const BYTES_MAX: usize = 64 << 20;
/// Time after which a client that reads nothing is disconnected.
const PATIENCE: Duration = Duration::from_secs(60);
/// The same while the budget is exceeded.
const PATIENCE_UNDER_PRESSURE: Duration = Duration::from_secs(2);

/// Bytes that streamed bodies hold together.
///
/// Nobody waits for it: a body that is read goes on whatever others hold. Over budget, bodies that nobody reads are
/// aborted early.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamBudget(Arc<AtomicUsize>);

impl StreamBudget {
    /// Accounts for bytes until the guard is dropped.
    pub(crate) fn hold(&self, bytes: usize) -> HeldBytes {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        HeldBytes { budget: self.clone(), bytes }
    }

    /// Accounts for a chunk until whoever sends it drops it.
    pub(crate) fn hold_chunk(&self, chunk: Bytes) -> Bytes {
        Bytes::from_owner(HeldChunk { _held: self.hold(chunk.len()), chunk })
    }

    /// Returns true while bodies hold too much.
    fn is_exceeded(&self) -> bool {
        self.0.load(Ordering::Relaxed) > BYTES_MAX
    }

    /// Returns true while there is room for what only spares work. Bodies are not aborted for it.
    pub(crate) fn has_room(&self) -> bool {
        self.0.load(Ordering::Relaxed) <= BYTES_MAX / 2
    }

    /// Returns the time that a client may read nothing.
    pub(crate) fn patience(&self) -> Duration {
        if self.is_exceeded() { PATIENCE_UNDER_PRESSURE } else { PATIENCE }
    }
}

/// Bytes in memory, given back when dropped.
#[derive(Debug)]
pub(crate) struct HeldBytes {
    budget: StreamBudget,
    bytes: usize,
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.budget.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A chunk that is accounted for.
struct HeldChunk {
    chunk: Bytes,
    _held: HeldBytes,
}

impl AsRef<[u8]> for HeldChunk {
    fn as_ref(&self) -> &[u8] {
        &self.chunk
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_shrinks_while_too_much_is_held() {
        let budget = StreamBudget::default();
        let held = [budget.hold(BYTES_MAX), budget.hold(1)];
        assert_eq!(budget.patience(), PATIENCE_UNDER_PRESSURE);
        drop(held);
        assert_eq!(budget.patience(), PATIENCE);
    }
}
