//! CEL cost: estimated before evaluation, tracked during it.
//!
//! The unit is cel-go's, so that Kubernetes' limits mean the same: 1 for reading a variable or field, 10 for creating
//! a list, 0.1 per character traversed. The [`estimator`] derives a range from types and schema limits; a [`Budget`]
//! tracks the actual cost and stops the evaluation at its limit. Both take the cost of a call from [`rules`].

pub(crate) mod budget;
pub(crate) mod estimator;
pub(crate) mod rules;
mod sizes;

pub use budget::Budget;
pub use sizes::Sizes;

/// Cost of an authorization check: two fit the per-request budget.
pub(crate) const CHECK: u64 = 350_000;
pub(crate) const NEW_LIST: u64 = 10;
pub(crate) const NEW_MAP: u64 = 30;
pub(crate) const NEW_MESSAGE: u64 = 40;
/// Per character traversed.
pub(crate) const PER_CHAR: f64 = 0.1;
/// Per character of a regular expression: one automaton state per four characters.
pub(crate) const PER_REGEX_CHAR: f64 = 0.25;

/// Estimated cost range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostEstimate {
    /// Lower bound.
    pub min: u64,
    /// Upper bound; `u64::MAX` if unbounded.
    pub max: u64,
}

/// Estimated size range in elements, entries, characters or bytes.
pub(crate) type SizeEstimate = CostEstimate;

impl CostEstimate {
    pub(crate) const ZERO: Self = Self::fixed(0);
    pub(crate) const UNKNOWN: Self = Self { min: 0, max: u64::MAX };

    pub(crate) const fn fixed(value: u64) -> Self {
        Self { min: value, max: value }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    pub(crate) fn times(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    /// Multiplies both bounds by a factor, rounding up.
    pub(crate) fn scaled(self, factor: f64) -> Self {
        Self { min: scale(self.min, factor), max: scale(self.max, factor) }
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// Multiplies and rounds up.
pub(crate) fn scale(value: u64, factor: f64) -> u64 {
    // The cast saturates at u64::MAX.
    (value as f64 * factor).ceil() as u64
}
