//! Bounds that a predicate puts on the encoded values of a field.

use bson::{RawBson, raw::RawBsonRef};

use crate::{
    filter::{Comparison, Predicate},
    key::{self, class, class_of},
};

/// Encoded values from `start`, inclusive, to `end`, exclusive, where a value counts as its prefix.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Interval {
    pub(super) start: Vec<u8>,
    pub(super) end: Vec<u8>,
    /// Exactly one value.
    pub(super) point: bool,
}

/// Intervals of a field, in order and disjoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) intervals: Vec<Interval>,
    /// A value within the bounds satisfies the predicate.
    pub(super) exact: bool,
}

impl Bounds {
    pub(super) fn is_point(&self) -> bool {
        matches!(self.intervals.as_slice(), [only] if only.point)
    }

    pub(super) fn all_points(&self) -> bool {
        self.intervals.iter().all(|interval| interval.point)
    }

    /// Returns true if a missing field may be within the bounds.
    pub(super) fn admits_null(&self) -> bool {
        let null = [class::NULL];
        self.intervals
            .iter()
            .any(|interval| interval.start.as_slice() <= &null && interval.end.as_slice() > &null)
    }

    /// Intersects with bounds on the same single value.
    pub(super) fn intersect(&self, other: &Self) -> Self {
        let mut intervals = Vec::new();
        for left in &self.intervals {
            for right in &other.intervals {
                let start = left.start.clone().max(right.start.clone());
                let end = left.end.clone().min(right.end.clone());
                if start < end {
                    intervals.push(Interval { start, end, point: left.point || right.point });
                }
            }
        }
        intervals.sort();
        Self { intervals, exact: self.exact && other.exact }
    }
}

/// Returns the bounds of a predicate, if it has any that an index can use.
pub(super) fn of(predicate: &Predicate) -> Option<Bounds> {
    match predicate {
        Predicate::Equal(operand) => point(operand).map(|interval| one(interval, true)),
        Predicate::Compare(comparison, operand) => compare(*comparison, operand.as_raw_bson_ref()),
        Predicate::In(set) if !set.has_patterns() => {
            let mut intervals = set.values().iter().map(point).collect::<Option<Vec<_>>>()?;
            intervals.sort();
            intervals.dedup();
            Some(Bounds { intervals, exact: true })
        }
        Predicate::Regex(pattern) => {
            let mut start = key::encode(RawBsonRef::String(pattern.prefix()?));
            // Without the terminator: every string with this prefix.
            start.truncate(start.len() - 2);
            let end = key::prefix_successor(&start)?;
            Some(one(Interval { start, end, point: false }, false))
        }
        // The same element satisfies all of them.
        Predicate::Element(parts) => {
            let combined = parts.iter().filter_map(of).reduce(|left, right| left.intersect(&right))?;
            Some(Bounds { exact: false, ..combined })
        }
        // Each part may be satisfied by another element, so one of them is as far as bounds go.
        Predicate::All(parts) => {
            let narrowest = parts
                .iter()
                .filter_map(of)
                .min_by_key(|bounds| (!bounds.all_points(), bounds.intervals.len()))?;
            Some(Bounds { exact: parts.len() == 1 && narrowest.exact, ..narrowest })
        }
        _ => None,
    }
}

fn one(interval: Interval, exact: bool) -> Bounds {
    let intervals = if interval.start < interval.end { vec![interval] } else { Vec::new() };
    Bounds { intervals, exact }
}

fn point(operand: &RawBson) -> Option<Interval> {
    let value = operand.as_raw_bson_ref();
    if matches!(value, RawBsonRef::Array(_) | RawBsonRef::Undefined) {
        // The index has the elements of an array, not the array.
        return None;
    }
    let start = key::encode(value);
    let end = key::prefix_successor(&start)?;
    Some(Interval { start, end, point: true })
}

fn compare(comparison: Comparison, operand: RawBsonRef<'_>) -> Option<Bounds> {
    let unusable = matches!(
        operand,
        RawBsonRef::Array(_) | RawBsonRef::Undefined | RawBsonRef::MinKey | RawBsonRef::MaxKey
    );
    if unusable || key::is_nan(operand) {
        return None;
    }
    let class = class_of(operand);
    let value = key::encode(operand);
    let after = key::prefix_successor(&value)?;
    // NaN sorts below the numbers but compares with none.
    let first = match class {
        class::NUMBER => key::encode(RawBsonRef::Double(f64::NEG_INFINITY)),
        _ => vec![class],
    };
    let last = vec![class + 1];
    let (start, end) = match comparison {
        Comparison::Greater => (after, last),
        Comparison::GreaterOrEqual => (value, last),
        Comparison::Less => (first, value),
        Comparison::LessOrEqual => (first, after),
    };
    Some(one(Interval { start, end, point: false }, true))
}
