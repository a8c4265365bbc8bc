//! What expressions cost: estimated before they run, counted while they do.
//!
//! The unit is the one the reference implementation uses, so that limits mean the same: one for reaching a variable
//! or field, ten for making a list, a tenth per character looked at. The [`estimate`] is a range computed from the
//! types and the sizes the schemas allow; a [`Budget`] counts what evaluation really does and stops it. Both take
//! the cost of a call from the same [`rules`].

pub(crate) mod budget;
pub(crate) mod estimate;
pub(crate) mod rules;

pub use budget::Budget;

/// What an authorization check costs: two fit in a request.
pub(crate) const CHECK: u64 = 350_000;
pub(crate) const NEW_LIST: u64 = 10;
pub(crate) const NEW_MAP: u64 = 30;
pub(crate) const NEW_MESSAGE: u64 = 40;
/// Per character traversed.
pub(crate) const PER_CHAR: f64 = 0.1;
/// Per character of a regular expression: a guess at one state for four characters.
pub(crate) const PER_REGEX_CHAR: f64 = 0.25;

/// The least and the most something can cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostRange {
    /// At least this.
    pub min: u64,
    /// At most this; `u64::MAX` when nothing is known.
    pub max: u64,
}

/// The least and the most elements, entries, characters or bytes something can have.
pub(crate) type SizeRange = CostRange;

impl CostRange {
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

    /// Both ends times a factor, rounded up.
    pub(crate) fn scaled(self, factor: f64) -> Self {
        Self { min: scale(self.min, factor), max: scale(self.max, factor) }
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// `value * factor`, rounded up.
pub(crate) fn scale(value: u64, factor: f64) -> u64 {
    // A float above the integers becomes the largest integer.
    (value as f64 * factor).ceil() as u64
}
