//! The budget of an evaluation.

use std::fmt;

use crate::error::EvalError;

/// Iterations between two looks at the interruption hook.
const ITERATIONS_PER_CHECK: u32 = 100;

/// The most memory that one evaluation may ask for, all in all. Costs are what Kubernetes says they are, and there
/// joining two lists costs one unit however long they are; this is what keeps such things from growing without end.
const ALLOCATED_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Counts what an evaluation costs, and stops it at a limit or when told to.
///
/// One budget may serve several evaluations, which then share its limit. An evaluation that wants more than 64 MiB of
/// memory for what it computes ends like one that costs too much.
#[derive(Clone)]
pub struct Budget<'h> {
    used: u64,
    limit: u64,
    allocated_bytes: u64,
    iterations: u32,
    interrupted: Option<&'h dyn Fn() -> bool>,
}

impl fmt::Debug for Budget<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("used", &self.used).field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl<'h> Budget<'h> {
    /// A budget of `limit` cost units.
    pub fn new(limit: u64) -> Self {
        Self { used: 0, limit, allocated_bytes: 0, iterations: 0, interrupted: None }
    }

    /// A budget that is never spent.
    pub fn unlimited() -> Self {
        Self::new(u64::MAX)
    }

    /// Asks `interrupted` every hundred iterations whether to stop.
    #[must_use]
    pub fn with_interrupt(mut self, interrupted: &'h dyn Fn() -> bool) -> Self {
        self.interrupted = Some(interrupted);
        self
    }

    /// What has been used so far.
    pub fn used(&self) -> u64 {
        self.used
    }

    pub(crate) fn charge(&mut self, cost: u64) -> Result<(), EvalError> {
        self.used = self.used.saturating_add(cost);
        if self.used > self.limit { Err(EvalError::CostLimitExceeded) } else { Ok(()) }
    }

    /// An evaluation begins: what earlier ones allocated is no longer held.
    pub(crate) fn start(&mut self) {
        self.allocated_bytes = 0;
    }

    /// Called before something is allocated, or directly after where its size is not known before.
    pub(crate) fn allocate(&mut self, bytes: u64) -> Result<(), EvalError> {
        self.allocated_bytes = self.allocated_bytes.saturating_add(bytes);
        if self.allocated_bytes > ALLOCATED_BYTES_MAX { Err(EvalError::CostLimitExceeded) } else { Ok(()) }
    }

    pub(crate) fn refund(&mut self, cost: u64) {
        self.used = self.used.saturating_sub(cost);
    }

    /// Called once per iteration of a macro.
    pub(crate) fn iterate(&mut self) -> Result<(), EvalError> {
        let Some(interrupted) = self.interrupted else { return Ok(()) };
        self.iterations = (self.iterations + 1) % ITERATIONS_PER_CHECK;
        if self.iterations == 0 && interrupted() { Err(EvalError::Interrupted) } else { Ok(()) }
    }
}
