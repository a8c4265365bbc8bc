//! Division of the server's seats among levels that lend and borrow.

/// Targets below this are raised to it: they are divided by.
const TARGET_MIN: f64 = 0.001;
/// Difference of sums that is rounding.
const EPSILON: f64 = 1e-7;

/// A level to allocate seats to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Claim {
    pub(crate) lower: f64,
    pub(crate) upper: f64,
    /// Seats that it would use; not below `lower`.
    pub(crate) target: f64,
}

impl Claim {
    fn target(&self) -> f64 {
        self.target.max(TARGET_MIN)
    }

    fn seats_at(&self, proportion: f64) -> f64 {
        (proportion * self.target()).min(self.upper).max(self.lower)
    }
}

/// Returns the seats of each level, which add up to `sum`, and the proportion of its target that each gets where its
/// bounds allow. `None` if the bounds do not allow that sum.
pub(crate) fn allocate(sum: usize, claims: &[Claim]) -> Option<(Vec<f64>, f64)> {
    let sum = sum as f64;
    let total = |of: fn(&Claim) -> f64| claims.iter().map(of).sum::<f64>();
    let (low, high) = (total(|claim| claim.lower), total(|claim| claim.upper));
    let is_valid =
        |claim: &Claim| claim.lower >= 0.0 && claim.target >= claim.lower && claim.upper >= claim.lower;
    if !claims.iter().all(is_valid) || low - sum > EPSILON || sum - high > EPSILON {
        return None;
    }
    if sum == 0.0 {
        return Some((vec![0.0; claims.len()], 0.0));
    }
    // The sum grows with the proportion, in straight lines between the proportions at which a level meets a bound.
    let mut bends: Vec<f64> = claims
        .iter()
        .flat_map(|claim| [claim.lower, claim.upper].map(|bound| bound / claim.target()))
        .collect();
    bends.sort_by(f64::total_cmp);
    let at = |proportion: f64| claims.iter().map(|claim| claim.seats_at(proportion)).sum::<f64>();
    let above = bends.partition_point(|bend| at(*bend) < sum - EPSILON);
    let proportion = match (above.checked_sub(1).and_then(|below| bends.get(below)), bends.get(above)) {
        (Some(below), Some(above)) => {
            let (less, more) = (at(*below), at(*above));
            if more > less { below + (above - below) * (sum - less) / (more - less) } else { *above }
        }
        (None, Some(first)) => *first,
        (last, None) => last.copied().unwrap_or_default(),
    };
    Some((claims.iter().map(|claim| claim.seats_at(proportion)).collect(), proportion))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn claim(lower: f64, upper: f64, target: f64) -> Claim {
        Claim { lower, upper, target }
    }

    #[test]
    fn seats_are_proportional_to_targets_within_bounds() {
        let (seats, proportion) =
            allocate(30, &[claim(0.0, 100.0, 10.0), claim(0.0, 100.0, 20.0), claim(0.0, 100.0, 30.0)])
                .unwrap();
        assert_eq!((seats, proportion), (vec![5.0, 10.0, 15.0], 0.5));
        // The first must have 8, the last may have 10.
        let (seats, _) =
            allocate(30, &[claim(8.0, 100.0, 10.0), claim(0.0, 100.0, 20.0), claim(0.0, 10.0, 30.0)])
                .unwrap();
        assert_eq!(seats.iter().map(|seats| seats.round()).collect::<Vec<_>>(), [8.0, 12.0, 10.0]);
        assert_eq!(allocate(5, &[claim(6.0, 9.0, 7.0)]), None);
        assert_eq!(allocate(10, &[claim(6.0, 9.0, 7.0)]), None);
        assert_eq!(allocate(0, &[claim(0.0, 9.0, 7.0)]).unwrap().0, [0.0]);
    }

    proptest! {
        #[test]
        fn allocation_adds_up_and_respects_bounds(
            parts in prop::collection::vec((0u32..50, 0u32..50, 0u32..100), 1..8), fraction in 0.0f64..=1.0,
        ) {
            let claims: Vec<Claim> = parts
                .iter()
                .map(|(lower, more, wanted)| {
                    let lower = f64::from(*lower);
                    claim(lower, lower + f64::from(*more), lower.max(f64::from(*wanted)))
                })
                .collect();
            let low: f64 = claims.iter().map(|claim| claim.lower).sum();
            let high: f64 = claims.iter().map(|claim| claim.upper).sum();
            let sum = (low + (high - low) * fraction).floor() as usize;
            let (seats, proportion) = allocate(sum, &claims).unwrap();
            prop_assert!((seats.iter().sum::<f64>() - sum as f64).abs() < 1e-3, "{seats:?} {sum}");
            for (claim, seats) in claims.iter().zip(&seats) {
                prop_assert!((claim.lower..=claim.upper).contains(seats));
                let is_free = *seats > claim.lower + 1e-6 && *seats < claim.upper - 1e-6;
                prop_assert!(!is_free || (seats - proportion * claim.target()).abs() < 1e-6);
            }
        }
    }
}
