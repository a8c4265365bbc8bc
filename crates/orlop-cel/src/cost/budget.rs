//! Runtime cost tracking.

use std::fmt;

use crate::error::EvalError;

/// Iterations between two calls of the interrupt hook.
const ITERATIONS_PER_CHECK: u32 = 100;

/// Limit on the memory that one evaluation may allocate in total. Kubernetes' cost model charges one unit for
/// concatenating two lists of any length, so the cost limit alone does not bound memory.
const ALLOCATED_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Tracks the actual cost of evaluations and stops them at a limit or on interrupt.
///
/// Several evaluations may share one budget and its limit. An evaluation that allocates more than 64 MiB fails with
/// [`EvalError::CostLimitExceeded`].
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
    /// Creates a budget of `limit` cost units.
    pub fn new(limit: u64) -> Self {
        Self { used: 0, limit, allocated_bytes: 0, iterations: 0, interrupted: None }
    }

    /// Creates a budget without a limit.
    pub fn unlimited() -> Self {
        Self::new(u64::MAX)
    }

    /// Polls `interrupted` every 100 comprehension iterations; `true` stops the evaluation.
    #[must_use]
    pub fn with_interrupt(mut self, interrupted: &'h dyn Fn() -> bool) -> Self {
        self.interrupted = Some(interrupted);
        self
    }

    /// Returns a budget of its own for an expression that this one's evaluation needs.
    pub(crate) fn nested(&self, limit: u64) -> Self {
        Self { interrupted: self.interrupted, ..Self::new(limit) }
    }

    /// Returns the cost used so far.
    pub fn used(&self) -> u64 {
        self.used
    }

    pub(crate) fn charge(&mut self, cost: u64) -> Result<(), EvalError> {
        self.used = self.used.saturating_add(cost);
        if self.used > self.limit { Err(EvalError::CostLimitExceeded) } else { Ok(()) }
    }

    /// Starts an evaluation: memory allocated by earlier ones is free again.
    pub(crate) fn start(&mut self) {
        self.allocated_bytes = 0;
    }

    /// Accounts an allocation. Call it before allocating, or directly after where the size is not known before.
    pub(crate) fn allocate(&mut self, bytes: u64) -> Result<(), EvalError> {
        self.allocated_bytes = self.allocated_bytes.saturating_add(bytes);
        if self.allocated_bytes > ALLOCATED_BYTES_MAX { Err(EvalError::CostLimitExceeded) } else { Ok(()) }
    }

    pub(crate) fn refund(&mut self, cost: u64) {
        self.used = self.used.saturating_sub(cost);
    }

    /// Accounts one iteration of a comprehension.
    pub(crate) fn iterate(&mut self) -> Result<(), EvalError> {
        let Some(interrupted) = self.interrupted else { return Ok(()) };
        self.iterations = (self.iterations + 1) % ITERATIONS_PER_CHECK;
        if self.iterations == 0 && interrupted() { Err(EvalError::Interrupted) } else { Ok(()) }
    }
}
