//! Ordering of values.

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
        (Value::Double(double), whole) => whole_and_double(whole, *double).map(Ordering::reverse),
        (whole, Value::Double(double)) => whole_and_double(whole, *double),
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

/// Compares as doubles, as the specification has it: integers beyond 2^53 equal the doubles they round to.
fn whole_and_double(whole: &Value<'_>, double: f64) -> Option<Ordering> {
    let rounded = match whole {
        Value::Int(value) => *value as f64,
        Value::Uint(value) => *value as f64,
        _ => return None,
    };
    rounded.partial_cmp(&double)
}
