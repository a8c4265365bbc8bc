//! Resource quantities: `100m`, `1.5Gi`, `2e3`.
//!
//! A quantity is an integer number of billionths. Smaller fractions are rounded up, and
//! values are capped at 64 bits, as in Kubernetes.

use std::cmp::Ordering;
use std::fmt;

/// Notation of a quantity, kept when it is formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// `m`, `k`, `M`…
    DecimalSi,
    /// `Ki`, `Mi`, `Gi`…
    BinarySi,
    /// `e3`, `E6`…
    DecimalExponent,
}

/// A resource quantity.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nano: i128,
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidQuantity {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

const NANO: i128 = 1_000_000_000;
const NANO_MAX: i128 = i64::MAX as i128 * NANO;
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

impl Quantity {
    pub fn parse(text: &str) -> Result<Self, InvalidQuantity> {
        let (negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            Some(_) => (false, text),
            None => return Err(InvalidQuantity::Format),
        };
        let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(InvalidQuantity::Format);
        }
        let (format, base, exponent) = suffix_of(suffix)?;
        let magnitude = scaled(whole, fraction, base, exponent);
        Ok(Self { nano: if negative { -magnitude } else { magnitude }, format })
    }

    /// Creates a quantity of whole units.
    pub fn from_units(units: i64, format: Format) -> Self {
        Self { nano: i128::from(units) * NANO, format }
    }

    pub fn from_milli(milli: i64, format: Format) -> Self {
        Self { nano: i128::from(milli) * (NANO / 1000), format }
    }

    /// Returns the value in units, rounded away from zero.
    pub fn units(&self) -> i64 {
        round_up(self.nano, NANO)
    }

    /// Returns the value in thousandths, rounded away from zero.
    pub fn milli_units(&self) -> i64 {
        round_up(self.nano, NANO / 1000)
    }

    pub fn is_zero(&self) -> bool {
        self.nano == 0
    }

    pub fn is_negative(&self) -> bool {
        self.nano < 0
    }

    /// Returns the sum in the notation of the first operand, unless that is zero.
    pub fn plus(self, other: Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        Self { nano: self.nano.saturating_add(other.nano).clamp(-NANO_MAX, NANO_MAX), format }
    }

    pub fn minus(self, other: Self) -> Self {
        self.plus(Self { nano: -other.nano, format: other.format })
    }

    pub fn format(&self) -> Format {
        self.format
    }
}

/// Returns the canonical form: `1000m` is `1`, `1.5Gi` is `1536Mi`.
pub fn canonical(text: &str) -> Result<String, InvalidQuantity> {
    Quantity::parse(text).map(|quantity| quantity.to_string())
}

fn round_up(nano: i128, unit: i128) -> i64 {
    let rounded = if nano >= 0 { (nano + unit - 1) / unit } else { (nano - unit + 1) / unit };
    i64::try_from(rounded).unwrap_or(if nano < 0 { i64::MIN } else { i64::MAX })
}

fn suffix_of(suffix: &str) -> Result<(Format, i128, i32), InvalidQuantity> {
    if let Some((_, exponent)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Ok((Format::DecimalSi, 10, *exponent));
    }
    if let Some(power) = BINARY.iter().position(|name| *name == suffix) {
        return Ok((Format::BinarySi, 1024, i32::try_from(power).unwrap_or_default() + 1));
    }
    if let Some(exponent) = suffix.strip_prefix(['e', 'E']) {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            // Exponents beyond this are zero or the maximum.
            let exponent = exponent
                .strip_prefix('+')
                .unwrap_or(exponent)
                .parse()
                .unwrap_or(if exponent.starts_with('-') { -1000 } else { 1000 });
            return Ok((Format::DecimalExponent, 10, exponent));
        }
    }
    let known = |c: char| c.is_ascii_digit() || "eEinumkKMGTP+-".contains(c);
    Err(if suffix.chars().all(known) { InvalidQuantity::Suffix } else { InvalidQuantity::Format })
}

/// Returns `whole.fraction * base^exponent` in billionths, rounded up and capped.
fn scaled(whole: &str, fraction: &str, base: i128, exponent: i32) -> i128 {
    let digits: String = format!("{whole}{fraction}").trim_start_matches('0').to_owned();
    if digits.is_empty() {
        return 0;
    }
    let mut power_of_ten = 9 - i32::try_from(fraction.len()).unwrap_or(i32::MAX);
    let mut multiplier = 1i128;
    if base == 10 {
        power_of_ten = power_of_ten.saturating_add(exponent);
    } else {
        multiplier = base.saturating_pow(exponent.unsigned_abs());
    }
    // Digits past the thirtieth only affect rounding.
    const DIGITS_MAX: usize = 30;
    let (kept, dropped) = digits.split_at(digits.len().min(DIGITS_MAX));
    power_of_ten = power_of_ten.saturating_add(i32::try_from(dropped.len()).unwrap_or(i32::MAX));
    let inexact = dropped.bytes().any(|byte| byte != b'0');
    let mantissa: i128 = kept.parse().unwrap_or(i128::MAX);
    let mantissa = mantissa.saturating_add(i128::from(inexact)).saturating_mul(multiplier);
    let nano = if power_of_ten >= 0 {
        10i128
            .checked_pow(power_of_ten.unsigned_abs())
            .map_or(i128::MAX, |scale| mantissa.saturating_mul(scale))
    } else {
        match 10i128.checked_pow(power_of_ten.unsigned_abs()) {
            Some(scale) => mantissa / scale + i128::from(mantissa % scale != 0),
            None => 1,
        }
    };
    nano.min(NANO_MAX)
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nano == 0 {
            return f.write_str("0");
        }
        let whole = self.nano % NANO == 0;
        if self.format == Format::BinarySi && whole && self.nano.abs() >= 1024 * NANO {
            let mut amount = self.nano / NANO;
            let mut power = 0;
            while amount % 1024 == 0 && power < BINARY.len() {
                amount /= 1024;
                power += 1;
            }
            let suffix =
                power.checked_sub(1).and_then(|index| BINARY.get(index)).copied().unwrap_or_default();
            return write!(f, "{amount}{suffix}");
        }
        let mut amount = self.nano;
        let mut exponent = -9;
        while amount % 1000 == 0 && exponent < 18 {
            amount /= 1000;
            exponent += 3;
        }
        match self.format {
            Format::DecimalExponent if exponent == 0 => write!(f, "{amount}"),
            Format::DecimalExponent => write!(f, "{amount}e{exponent}"),
            _ => {
                let suffix =
                    DECIMAL.iter().find(|(_, power)| *power == exponent).map_or("", |(name, _)| *name);
                write!(f, "{amount}{suffix}")
            }
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn canonical_form_of_quantities() {
        for (text, expected) in [
            ("0", "0"),
            ("0Ki", "0"),
            ("-0", "0"),
            ("1", "1"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("1.5", "1500m"),
            ("0.1", "100m"),
            ("1000", "1k"),
            ("1024", "1024"),
            ("1Ki", "1Ki"),
            ("1024Ki", "1Mi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("0.5Mi", "512Ki"),
            ("1e3", "1e3"),
            ("1E3", "1e3"),
            ("1000e-3", "1"),
            ("-1.5k", "-1500"),
            ("100k", "100k"),
            (".5", "500m"),
            ("5.", "5"),
            ("1n", "1n"),
            ("0.1n", "1n"),
            ("1.0000000001", "1000000001n"),
            ("10E", "9223372036854775807"),
            ("12345678901234567890123", "9223372036854775807"),
            ("3.3Ki", "3379200m"),
        ] {
            assert_eq!(canonical(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn invalid_quantities_are_refused() {
        for text in ["", "-", "x", "1x", "1.2.3", ".", "1 ", "1KiB"] {
            assert_eq!(
                canonical(text).map_err(|error| error == InvalidQuantity::Format),
                Err(true),
                "{text}"
            );
        }
        assert_eq!(canonical("1mm"), Err(InvalidQuantity::Suffix));
        assert_eq!(canonical("1e"), Err(InvalidQuantity::Suffix));
    }

    #[test]
    fn arithmetic_and_comparison_are_exact() {
        let quantity = |text: &str| Quantity::parse(text).unwrap();
        assert_eq!(quantity("100m").plus(quantity("0.9")).to_string(), "1");
        assert_eq!(quantity("1Gi").minus(quantity("1Mi")).to_string(), "1023Mi");
        assert!(quantity("1k") < quantity("1Ki"));
        assert_eq!(quantity("1Ki"), quantity("1024"));
        assert_eq!(
            (quantity("1m").units(), quantity("1n").milli_units(), quantity("-1m").units()),
            (1, 1, -1)
        );
    }

    proptest! {
        #[test]
        fn canonical_form_is_stable(text in "[-+]?[0-9.]{0,25}([a-zA-Z]{0,2}[-+]?[0-9]{0,12})?") {
            if let Ok(once) = canonical(&text) {
                let again = canonical(&once).unwrap();
                prop_assert_eq!(Quantity::parse(&again).unwrap(), Quantity::parse(&text).unwrap());
            }
        }
    }
}
