//! Requests that are answered and still occupy seats.

use std::{cmp::Reverse, collections::BinaryHeap, time::Instant};

use super::Slot;

/// Requests by the time at which their seats become free.
#[derive(Debug, Default)]
pub(super) struct Lingering(BinaryHeap<Reverse<(Instant, Slot)>>);

impl Lingering {
    pub(super) fn push(&mut self, until: Instant, slot: Slot) {
        self.0.push(Reverse((until, slot)));
    }

    /// Returns the time of the next.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.peek().map(|Reverse((until, _))| *until)
    }

    /// Removes the next if its time has come.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(Instant, Slot)> {
        if self.next()? > now {
            return None;
        }
        self.0.pop().map(|Reverse(due)| due)
    }
}
