//! Interpolation: a guess of where a number is in an ascending list.

/// Line through the first and the last number of a list.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Interpolation {
    first: u64,
    /// Positions per unit.
    slope: f64,
}

impl Interpolation {
    /// Draws the line of a list that has `len` numbers from `first` to `last`.
    pub(super) fn new(first: u64, last: u64, len: usize) -> Self {
        let distance = last.saturating_sub(first).max(1);
        Self { first, slope: len.saturating_sub(1) as f64 / distance as f64 }
    }

    /// Returns the nearest position to a number, which is at most the last unless it is above all of them.
    pub(super) fn position(self, number: u64) -> usize {
        // Halved, the distance is a signed number, which converts faster. Conversion to an integer saturates.
        let half = (number.saturating_sub(self.first) >> 1) as i64;
        (half as f64 * (2.0 * self.slope) + 0.5) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evenly_spread_numbers_need_one_probe() {
        for step in [2_u64, 7, 1 << 40] {
            let line = Interpolation::new(100, 100 + 127 * step, 128);
            for position in 0..128_u64 {
                assert_eq!(line.position(100 + position * step), position as usize, "step {step}");
            }
            assert_eq!(line.position(0), 0);
        }
        assert_eq!(Interpolation::new(5, 5, 1).position(u64::MAX), 0);
        assert_eq!(Interpolation::default().position(u64::MAX), 0);
    }
}
