//! Arithmetic on BSON numbers: an int becomes a long when it must, a long that overflows is an error.

use bson::Bson;

use crate::{
    error::{Error, Result},
    path::Path,
};

pub(super) fn add(left: &Bson, right: &Bson, path: &Path) -> Result<Bson> {
    combine(left, right, path, i64::checked_add, |left, right| left + right)
}

pub(super) fn multiply(left: &Bson, right: &Bson, path: &Path) -> Result<Bson> {
    combine(left, right, path, i64::checked_mul, |left, right| left * right)
}

pub(super) fn zero_like(number: &Bson) -> Bson {
    match number {
        Bson::Int32(_) => Bson::Int32(0),
        Bson::Int64(_) => Bson::Int64(0),
        _ => Bson::Double(0.0),
    }
}

fn combine(
    left: &Bson,
    right: &Bson,
    path: &Path,
    whole: impl Fn(i64, i64) -> Option<i64>,
    real: impl Fn(f64, f64) -> f64,
) -> Result<Bson> {
    let overflow = || Error::invalid(format!("the value at '{path}' would overflow"));
    match (left, right) {
        (Bson::Int32(a), Bson::Int32(b)) => {
            let sum = whole(i64::from(*a), i64::from(*b)).ok_or_else(overflow)?;
            Ok(i32::try_from(sum).map_or(Bson::Int64(sum), Bson::Int32))
        }
        (Bson::Int32(_) | Bson::Int64(_), Bson::Int32(_) | Bson::Int64(_)) => {
            whole(integer(left), integer(right)).map(Bson::Int64).ok_or_else(overflow)
        }
        (Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_), _) => {
            Ok(Bson::Double(real(float(left), float(right))))
        }
        _ => Err(Error::invalid(format!("Cannot apply arithmetic to the non-numeric value at '{path}'"))),
    }
}

fn integer(value: &Bson) -> i64 {
    match value {
        Bson::Int32(value) => i64::from(*value),
        Bson::Int64(value) => *value,
        _ => 0,
    }
}

fn float(value: &Bson) -> f64 {
    match value {
        Bson::Int32(value) => f64::from(*value),
        Bson::Int64(value) => *value as f64,
        Bson::Double(value) => *value,
        _ => f64::NAN,
    }
}
