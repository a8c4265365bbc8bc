//! Which of two values is the greater.

use std::cmp::Ordering;

use super::Value;
use crate::error::EvalError;

/// Orders two values of comparable kinds.
pub(crate) fn compare(one: &Value<'_>, other: &Value<'_>) -> Result<Ordering, EvalError> {
    match (one, other) {
        (Value::Bool(one), Value::Bool(other)) => Ok(one.cmp(other)),
        (Value::String(one), Value::String(other)) => Ok((**one).cmp(&**other)),
        (Value::Bytes(one), Value::Bytes(other)) => Ok(one.cmp(other)),
        (Value::Timestamp(one), Value::Timestamp(other)) => Ok(one.cmp(other)),
        (Value::Duration(one), Value::Duration(other)) => Ok(one.cmp(other)),
        (
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
        ) => numbers(one, other).ok_or_else(|| EvalError::failed("NaN values cannot be ordered")),
        _ => Err(EvalError::no_such_overload()),
    }
}

/// Orders two numbers by value; `None` if one is not a number.
pub(super) fn numbers(one: &Value<'_>, other: &Value<'_>) -> Option<Ordering> {
    match (one, other) {
        (Value::Double(one), Value::Double(other)) => one.partial_cmp(other),
        (Value::Double(double), whole) => whole_and_double(integer(whole)?, *double).map(Ordering::reverse),
        (whole, Value::Double(double)) => whole_and_double(integer(whole)?, *double),
        (one, other) => Some(integer(one)?.cmp(&integer(other)?)),
    }
}

fn integer(value: &Value<'_>) -> Option<i128> {
    match value {
        Value::Int(value) => Some(i128::from(*value)),
        Value::Uint(value) => Some(i128::from(*value)),
        _ => None,
    }
}

/// Compares without the rounding that turning the integer into a double would bring.
fn whole_and_double(whole: i128, double: f64) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    // Doubles beyond the 64-bit integers saturate, which keeps their order.
    let floor = double.floor();
    Some(whole.cmp(&(floor as i128)).then(if double > floor { Ordering::Less } else { Ordering::Equal }))
}
