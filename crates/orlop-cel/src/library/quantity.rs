//! Kubernetes quantities: `100m`, `1.5Gi`, `12e6`.
//!
//! A quantity is a decimal with nine places. Finer parts are rounded away from zero, and binary suffixes are capped at
//! 2⁶³-1, as in Kubernetes. `isInteger` depends on the notation: true for `1k` and `1Ti`, false for `1000m` and `1Pi`.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::error::EvalError;
use crate::functions::{CallContext, EvalResult, Functions};
use crate::library::opaque::{Opaque, QUANTITY};
use crate::types::Type;
use crate::value::Value;

const NANOS_PER_UNIT: i128 = 1_000_000_000;
/// Maximum of binary suffixes.
const BINARY_NANOS_MAX: i128 = i64::MAX as i128 * NANOS_PER_UNIT;
/// Bound on magnitudes, so that sums of a few do not overflow.
const NANOS_MAX: i128 = i128::MAX / 1_000_000;
/// Decimal digits that always fit 64 bits.
const SHORT_DIGITS_MAX: usize = 18;

/// A parsed quantity.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    /// The power of ten that Kubernetes counts it in.
    exponent: i32,
    /// Kubernetes stores it as an int64, not as an infinite-precision decimal.
    short: bool,
}

pub(crate) fn declare(f: &mut Functions) {
    let q = || QUANTITY;
    f.global("quantity", "string_to_quantity", [Type::String], q(), parse_value);
    f.global("isQuantity", "is_quantity_string", [Type::String], Type::Bool, |_, args| match args {
        [Value::String(text)] => Ok(Value::Bool(parse(text).is_ok())),
        _ => Err(EvalError::no_such_overload()),
    });
    f.global("sign", "quantity_sign", [q()], Type::Int, sign);
    f.member("isGreaterThan", "quantity_is_greater_than", [q(), q()], Type::Bool, |_, args| {
        order(args).map(|order| Value::Bool(order.is_gt()))
    });
    f.member("isLessThan", "quantity_is_less_than", [q(), q()], Type::Bool, |_, args| {
        order(args).map(|order| Value::Bool(order.is_lt()))
    });
    f.member("compareTo", "quantity_compare_to", [q(), q()], Type::Int, |_, args| {
        order(args).map(|order| Value::Int(order as i64))
    });
    f.member("asApproximateFloat", "quantity_get_float", [q()], Type::Double, |_, args| {
        one(args).map(|quantity| Value::Double(quantity.to_double()))
    });
    f.member("asInteger", "quantity_get_int", [q()], Type::Int, |_, args| {
        let integer = one(args)?.to_int();
        integer.map(Value::Int).ok_or_else(|| EvalError::failed("cannot convert value to integer"))
    });
    f.member("isInteger", "quantity_is_integer", [q()], Type::Bool, |_, args| {
        one(args).map(|quantity| Value::Bool(quantity.to_int().is_some()))
    });
    f.member("add", "quantity_add", [q(), q()], q(), |_, args| combine(args, i128::checked_add));
    f.member("add", "quantity_add_int", [q(), Type::Int], q(), |_, args| combine(args, i128::checked_add));
    f.member("sub", "quantity_sub", [q(), q()], q(), |_, args| combine(args, i128::checked_sub));
    f.member("sub", "quantity_sub_int", [q(), Type::Int], q(), |_, args| combine(args, i128::checked_sub));
}

fn value<'a>(quantity: Quantity) -> Value<'a> {
    Value::Opaque(Opaque::Quantity(Arc::new(quantity)))
}

fn parse_value<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    match args {
        [Value::String(text)] => parse(text).map(value).map_err(EvalError::failed),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn one(args: &[Value<'_>]) -> Result<Quantity, EvalError> {
    match args {
        [Value::Opaque(Opaque::Quantity(quantity))] => Ok(**quantity),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn sign<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    one(args).map(|quantity| Value::Int(quantity.nanos.signum() as i64))
}

fn order(args: &[Value<'_>]) -> Result<Ordering, EvalError> {
    match args {
        [Value::Opaque(Opaque::Quantity(one)), Value::Opaque(Opaque::Quantity(other))] => {
            Ok(one.compare(other))
        }
        _ => Err(EvalError::no_such_overload()),
    }
}

fn combine<'a>(args: &[Value<'a>], operation: fn(i128, i128) -> Option<i128>) -> EvalResult<'a> {
    let (one, other) = match args {
        [Value::Opaque(Opaque::Quantity(one)), Value::Opaque(Opaque::Quantity(other))] => (**one, **other),
        [Value::Opaque(Opaque::Quantity(one)), Value::Int(other)] => {
            (**one, Quantity { nanos: i128::from(*other) * NANOS_PER_UNIT, exponent: 0, short: true })
        }
        _ => return Err(EvalError::no_such_overload()),
    };
    let nanos = operation(one.nanos, other.nanos).ok_or_else(|| EvalError::failed("quantity overflow"))?;
    // Scales differ too much to be added exactly.
    let exponent = match (one.nanos, other.nanos) {
        (_, 0) => one.exponent,
        (0, _) => other.exponent,
        _ => one.exponent.min(other.exponent),
    };
    let sum = Quantity { nanos, exponent, short: true };
    let short = one.short && other.short && i64::try_from(sum.count()).is_ok();
    Ok(value(Quantity { short, ..sum }))
}

impl Quantity {
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }

    /// Returns the mantissa.
    fn count(self) -> i128 {
        let places = self.exponent.saturating_add(9).max(0).unsigned_abs();
        10_i128.checked_pow(places).map_or(0, |unit| self.nanos / unit)
    }

    fn to_int(self) -> Option<i64> {
        if self.short && self.exponent >= 0 { i64::try_from(self.nanos / NANOS_PER_UNIT).ok() } else { None }
    }

    /// The double that Kubernetes computes, which need not be the nearest.
    fn to_double(self) -> f64 {
        if self.exponent == 0 {
            return self.count() as f64;
        }
        self.count() as f64 * format!("1e{}", self.exponent).parse::<f64>().unwrap_or(f64::NAN)
    }
}

const FORMAT_WRONG: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const SUFFIX_WRONG: &str = "unable to parse quantity's suffix";

/// Parses a quantity.
pub(crate) fn parse(text: &str) -> Result<Quantity, &'static str> {
    if text.is_empty() {
        return Err(FORMAT_WRONG);
    }
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (units, rest) = unsigned.split_at(digits(unsigned));
    let (places, suffix) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(digits(rest)),
        None => ("", rest),
    };
    if !has_suffix_form(suffix) {
        return Err(FORMAT_WRONG);
    }
    let scale = Scale::of(suffix).ok_or(SUFFIX_WRONG)?;
    let units = units.trim_start_matches('0');
    let nanos = nanos(units, places, scale);
    let length = units.len().max(1) + places.len();
    let (short, exponent) = match scale {
        Scale::Ten(exponent) => (length <= SHORT_DIGITS_MAX, exponent.saturating_sub(places.len() as i32)),
        // Kubernetes estimates the digits of the product.
        Scale::Two(power) => (places.is_empty() && length + 3 * power as usize <= 14, 0),
    };
    // Everything else is a decimal with nine places.
    let short = short && exponent >= -9 || nanos == 0;
    let exponent = if short { exponent } else { -9 };
    Ok(Quantity { nanos: if negative { -nanos } else { nanos }, exponent, short })
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// Letters, then perhaps a sign, then perhaps digits.
fn has_suffix_form(suffix: &str) -> bool {
    let rest = suffix.trim_start_matches(|c: char| "eEinumkKMGTP".contains(c));
    let rest = rest.strip_prefix(['+', '-']).unwrap_or(rest);
    rest.bytes().all(|b| b.is_ascii_digit())
}

/// Returns the multiplier of a suffix.
#[derive(Clone, Copy)]
enum Scale {
    /// A power of ten.
    Ten(i32),
    /// A power of 1024.
    Two(u32),
}

impl Scale {
    fn of(suffix: &str) -> Option<Self> {
        Some(match suffix {
            "" => Self::Ten(0),
            "n" => Self::Ten(-9),
            "u" => Self::Ten(-6),
            "m" => Self::Ten(-3),
            "k" => Self::Ten(3),
            "M" => Self::Ten(6),
            "G" => Self::Ten(9),
            "T" => Self::Ten(12),
            "P" => Self::Ten(15),
            "E" => Self::Ten(18),
            "Ki" => Self::Two(1),
            "Mi" => Self::Two(2),
            "Gi" => Self::Two(3),
            "Ti" => Self::Two(4),
            "Pi" => Self::Two(5),
            "Ei" => Self::Two(6),
            exponent => Self::Ten(exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
        })
    }
}

/// `units.places` times the scale in billionths, rounded up and cut at the maximum.
fn nanos(units: &str, places: &str, scale: Scale) -> i128 {
    // Thirty-six digits are beyond every limit; places after them can only round.
    let places = &places[..places.len().min(36_usize.saturating_sub(units.len()))];
    let digits: String = [units, places].concat();
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return 0;
    }
    let most = match scale {
        Scale::Ten(_) => NANOS_MAX,
        Scale::Two(_) => BINARY_NANOS_MAX,
    };
    if digits.len() > 36 {
        return most;
    }
    let mantissa: i128 = digits.parse().unwrap_or(i128::MAX);
    let (mantissa, exponent) = match scale {
        Scale::Ten(exponent) => (Some(mantissa), exponent.saturating_add(9)),
        Scale::Two(power) => (mantissa.checked_mul(1024_i128.pow(power)), 9),
    };
    let exponent = exponent.saturating_sub(places.len() as i32);
    let Some(mantissa) = mantissa else { return most };
    let power = |exponent: u32| 10_i128.checked_pow(exponent);
    let nanos = match u32::try_from(exponent) {
        Ok(exponent) => power(exponent).and_then(|power| mantissa.checked_mul(power)).unwrap_or(most),
        Err(_) => match power(exponent.unsigned_abs()) {
            Some(power) => mantissa / power + i128::from(mantissa % power != 0),
            None => 1,
        },
    };
    nanos.min(most)
}
