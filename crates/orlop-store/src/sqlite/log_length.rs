//! Length of the write-ahead log, between the commits that grow it and the thread that checkpoints it.

use std::{
    sync::{Condvar, Mutex, PoisonError},
    time::Duration,
};

/// Pages added to the log before they are copied: a page written many times in between is copied once.
const STEP_PAGES: u32 = 4096;
/// Sizes of the log's header and of a page in it.
const HEADER_BYTES: u64 = 32;
const FRAME_BYTES: u64 = 24 + 4096;

/// Length of the log, as reported by commits. Wakes the checkpoint thread.
#[derive(Debug, Default)]
pub(super) struct LogLength {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Pages in the log after the last commit.
    pages: u32,
    /// Pages in the log at the last checkpoint.
    copied_at: u32,
    closing: bool,
}

impl LogLength {
    /// Records the length of the log after a commit.
    pub(super) fn committed(&self, pages: u32) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let restarted = pages < state.pages;
        state.pages = pages;
        if restarted {
            state.copied_at = 0;
        }
        if state.is_due() {
            self.changed.notify_one();
        }
    }

    /// Returns the end of the log in its file.
    pub(super) fn bytes(&self) -> u64 {
        let pages = self.state.lock().unwrap_or_else(PoisonError::into_inner).pages;
        HEADER_BYTES + u64::from(pages) * FRAME_BYTES
    }

    /// Waits until a checkpoint is due, at most for `max`; `None` when the store closes.
    pub(super) fn wait_until_due(&self, max: Duration) -> Option<u32> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_early = |state: &mut State| !state.closing && !state.is_due();
        let waited = self.changed.wait_timeout_while(state, max, is_early);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.copied_at = state.pages;
        (!state.closing).then_some(state.pages)
    }

    pub(super) fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closing = true;
        self.changed.notify_one();
    }
}

impl State {
    fn is_due(&self) -> bool {
        self.pages >= self.copied_at.saturating_add(STEP_PAGES)
    }
}
