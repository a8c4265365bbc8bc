//! Numbers of all four BSON types in one order.
//!
//! A number is the largest double that is not above it, and the distance to it. The distance is non-zero
//! only for 64-bit integers that no double represents, and fits two bytes there.

use bson::{Decimal128, raw::RawBsonRef};

/// Length of an encoded number, without its class.
pub(crate) const NUMBER_LEN: usize = 10;

/// A number as (double below, distance).
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub(crate) struct Number {
    double: f64,
    distance: u16,
}

impl Number {
    pub(crate) fn from_f64(value: f64) -> Self {
        // Negative zero equals zero.
        Self { double: if value == 0.0 { 0.0 } else { value }, distance: 0 }
    }

    pub(crate) fn from_i64(value: i64) -> Self {
        let nearest = value as f64;
        let exact = i128::from(value);
        let double = if nearest as i128 > exact { nearest.next_down() } else { nearest };
        let distance = exact - double as i128;
        debug_assert!((0..=2048).contains(&distance));
        Self { double, distance: distance as u16 }
    }

    /// Returns the number of a value, if it is one. A `Decimal128` counts as its nearest double.
    pub(crate) fn of(value: RawBsonRef<'_>) -> Option<Self> {
        Some(match value {
            RawBsonRef::Double(value) => Self::from_f64(value),
            RawBsonRef::Int32(value) => Self::from_f64(f64::from(value)),
            RawBsonRef::Int64(value) => Self::from_i64(value),
            RawBsonRef::Decimal128(value) => Self::from_f64(decimal_to_f64(value)),
            _ => return None,
        })
    }

    pub(crate) fn is_nan(self) -> bool {
        self.double.is_nan()
    }

    /// Total order; NaN is the lowest number and equals itself.
    pub(crate) fn compare(self, other: Self) -> std::cmp::Ordering {
        self.sortable().cmp(&other.sortable()).then(self.distance.cmp(&other.distance))
    }

    fn sortable(self) -> u64 {
        if self.double.is_nan() {
            return 0;
        }
        let bits = self.double.to_bits();
        if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
    }

    pub(crate) fn encode(self) -> [u8; NUMBER_LEN] {
        let mut bytes = [0; NUMBER_LEN];
        bytes[..8].copy_from_slice(&self.sortable().to_be_bytes());
        bytes[8..].copy_from_slice(&self.distance.to_be_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: [u8; NUMBER_LEN]) -> Self {
        let [a, b, c, d, e, f, g, h, high, low] = bytes;
        let sortable = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        let double = match sortable {
            0 => f64::NAN,
            _ if sortable >> 63 == 1 => f64::from_bits(sortable & !(1 << 63)),
            _ => f64::from_bits(!sortable),
        };
        Self { double, distance: u16::from_be_bytes([high, low]) }
    }

    /// Returns a BSON number that compares equal.
    pub(crate) fn to_bson(self) -> bson::Bson {
        // Saturates only for a damaged key: an integer with a distance is far below.
        let whole = (self.double as i128).saturating_add(i128::from(self.distance));
        match i64::try_from(whole) {
            Ok(whole) if self.distance > 0 || whole as f64 == self.double => bson::Bson::Int64(whole),
            _ => bson::Bson::Double(self.double),
        }
    }
}

pub(crate) fn decimal_to_f64(value: Decimal128) -> f64 {
    value.to_string().parse().unwrap_or(f64::NAN)
}
