//! The time limit of an operation.

use std::time::Instant;

use crate::error::{Error, Result};

/// Rows between two looks at the clock.
const CLOCK_INTERVAL: u64 = 128;

/// A time limit, checked now and then as rows go by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    at: Option<Instant>,
    /// Rows since the clock was looked at.
    rows: u64,
}

impl Deadline {
    pub(crate) fn new(at: Option<Instant>) -> Self {
        Self { at, rows: 0 }
    }

    /// Counts rows. An error once the time is over.
    pub(crate) fn tick(&mut self, rows: u64) -> Result<()> {
        self.rows += rows;
        if self.rows < CLOCK_INTERVAL {
            return Ok(());
        }
        self.rows = 0;
        self.check()
    }

    /// Returns an error if the time is over.
    pub(crate) fn check(&self) -> Result<()> {
        if self.at.is_some_and(|at| Instant::now() > at) { Err(Error::TimedOut) } else { Ok(()) }
    }
}
