//! Work, in seat-seconds.

use std::{
    fmt,
    ops::{Add, AddAssign, Sub, SubAssign},
    time::Duration,
};

/// Work: seats times time. Also the unit of virtual time, which is work per queue.
///
/// Held in seat-nanoseconds. 128 bits do not overflow in the life of a process, so there is no epoch to advance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SeatSeconds(i128);

impl SeatSeconds {
    /// Returns the work of some seats for a time.
    pub(crate) fn of(seats: usize, time: Duration) -> Self {
        Self(nanoseconds(time) * seats as i128)
    }

    /// Returns the equal share of each of `parts` in the work of some seats for a time.
    pub(crate) fn share(seats: usize, time: Duration, parts: usize) -> Self {
        Self(nanoseconds(time) * seats as i128 / parts.max(1) as i128)
    }

    /// Returns the time that some seats take for the work.
    pub(crate) fn duration_of(self, seats: usize) -> Duration {
        let nanoseconds = self.0.max(0) / seats.max(1) as i128;
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    /// Returns the number of seat-seconds.
    pub(crate) fn as_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

fn nanoseconds(time: Duration) -> i128 {
    i128::try_from(time.as_nanos()).unwrap_or(i128::MAX >> 32)
}

impl Add for SeatSeconds {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Sub for SeatSeconds {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl AddAssign for SeatSeconds {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl SubAssign for SeatSeconds {
    fn sub_assign(&mut self, other: Self) {
        self.0 -= other.0;
    }
}

impl fmt::Display for SeatSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let hundred_millionths = self.0.unsigned_abs() / 10;
        write!(f, "{sign}{}.{:08}ss", hundred_millionths / 100_000_000, hundred_millionths % 100_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_seats_times_time() {
        let work = SeatSeconds::of(10, Duration::from_millis(50));
        assert_eq!(work.to_string(), "0.50000000ss");
        assert_eq!(work.duration_of(5), Duration::from_millis(100));
        assert_eq!((SeatSeconds::default() - work).to_string(), "-0.50000000ss");
        assert_eq!(SeatSeconds::share(3, Duration::from_secs(2), 4).to_string(), "1.50000000ss");
    }
}
