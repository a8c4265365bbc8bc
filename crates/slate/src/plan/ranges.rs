//! Key ranges of an index from the bounds of its fields.

use super::bounds::{Bounds, Interval};
use crate::{catalog::IndexField, key, store::Range};

/// Most ranges of one scan. Beyond, later fields filter instead of bounding.
const RANGES_MAX: usize = 1000;

/// Ranges of an index, and how much of the filter they stand for.
#[derive(Debug)]
pub(super) struct IndexRanges {
    pub(super) ranges: Vec<Range>,
    /// Leading fields with exactly one value.
    pub(super) fixed: usize,
    /// Leading fields with bounds.
    pub(super) bounded: usize,
}

/// Combines bounds, one per field, into ranges in key order. `bounds[i]` belongs to `fields[i]`.
pub(super) fn combine(fields: &[IndexField], bounds: &[Option<&Bounds>]) -> IndexRanges {
    let mut prefixes: Vec<Vec<u8>> = vec![Vec::new()];
    let (mut fixed, mut bounded) = (0, 0);
    for (field, bounds) in fields.iter().zip(bounds) {
        let Some(bounds) = bounds else { break };
        if prefixes.len().saturating_mul(bounds.intervals.len()) > RANGES_MAX {
            break;
        }
        bounded += 1;
        if !bounds.all_points() {
            let ranges = prefixes
                .iter()
                .flat_map(|prefix| {
                    in_key_order(field, bounds).map(move |interval| range(prefix, field, interval))
                })
                .collect();
            return IndexRanges { ranges, fixed, bounded };
        }
        if bounds.is_point() && fixed + 1 == bounded {
            fixed = bounded;
        }
        prefixes = prefixes
            .iter()
            .flat_map(|prefix| {
                in_key_order(field, bounds).map(move |interval| {
                    let mut next = prefix.clone();
                    let from = next.len();
                    next.extend_from_slice(&interval.start);
                    if field.descending {
                        key::complement(&mut next[from..]);
                    }
                    next
                })
            })
            .collect();
    }
    let ranges = prefixes.iter().map(|prefix| Range::prefix(prefix)).collect();
    IndexRanges { ranges, fixed, bounded }
}

fn in_key_order<'a>(field: &IndexField, bounds: &'a Bounds) -> Box<dyn Iterator<Item = &'a Interval> + 'a> {
    if field.descending { Box::new(bounds.intervals.iter().rev()) } else { Box::new(bounds.intervals.iter()) }
}

fn range(prefix: &[u8], field: &IndexField, interval: &Interval) -> Range {
    let with_prefix = |bytes: &[u8]| [prefix, bytes].concat();
    if !field.descending {
        return Range { start: with_prefix(&interval.start), end: Some(with_prefix(&interval.end)) };
    }
    let complemented = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        key::complement(&mut bytes);
        bytes
    };
    // Complemented, the order is reversed: the excluded end becomes an excluded start, and the included
    // start, with everything that it is a prefix of, an included end.
    let start = key::prefix_successor(&complemented(&interval.end)).unwrap_or_default();
    let end = key::prefix_successor(&complemented(&interval.start));
    Range {
        start: with_prefix(&start),
        end: match end {
            Some(end) => Some(with_prefix(&end)),
            None => key::prefix_successor(prefix),
        },
    }
}
