//! Kubernetes' functions on lists, and the sorting that others share.

use std::cmp::Ordering;

use crate::error::EvalError;
use crate::evaluator::add;
use crate::functions::{CallContext, EvalResult, Functions};
use crate::time::Duration;
use crate::types::Type;
use crate::value::{List, Value, compare, equals};

/// The types whose values have an order.
pub(crate) const COMPARABLE: [Type; 8] = [
    Type::Int,
    Type::Uint,
    Type::Double,
    Type::Bool,
    Type::Duration,
    Type::Timestamp,
    Type::String,
    Type::Bytes,
];

pub(crate) fn declare(f: &mut Functions) {
    for ty in COMPARABLE {
        let list = || Type::list(ty.clone());
        f.member("isSorted", &format!("list_{ty}_is_sorted_bool"), [list()], Type::Bool, is_sorted);
        f.member("max", &format!("list_{ty}_max_{ty}"), [list()], ty.clone(), |_, args| {
            extremum(args, "max", Ordering::Less)
        });
        f.member("min", &format!("list_{ty}_min_{ty}"), [list()], ty.clone(), |_, args| {
            extremum(args, "min", Ordering::Greater)
        });
    }
    let sum = "sum";
    f.member(sum, "list_int_sum_int", [Type::list(Type::Int)], Type::Int, |_, args| {
        total(args, Value::Int(0))
    });
    f.member(sum, "list_uint_sum_uint", [Type::list(Type::Uint)], Type::Uint, |_, args| {
        total(args, Value::Uint(0))
    });
    f.member(sum, "list_double_sum_double", [Type::list(Type::Double)], Type::Double, |_, args| {
        total(args, Value::Double(0.0))
    });
    f.member(sum, "list_duration_sum_duration", [Type::list(Type::Duration)], Type::Duration, |_, args| {
        total(args, Value::Duration(Duration { nanos: 0 }))
    });
    let element = || Type::param("A");
    let list = || Type::list(Type::param("A"));
    f.member("indexOf", "list_a_index_of_int", [list(), element()], Type::Int, index_of);
    f.member("lastIndexOf", "list_a_last_index_of_int", [list(), element()], Type::Int, last_index_of);
}

/// `includes`: membership for lists, equality for anything else.
pub(crate) fn declare_includes(f: &mut Functions) {
    f.member("includes", "list_includes_dyn_dyn", [Type::Dyn, Type::Dyn], Type::Bool, |_, args| match args {
        [Value::List(list), wanted] => list.contains(wanted).map(Value::Bool),
        [one, other] => equals(one, other).map(Value::Bool),
        _ => Err(EvalError::no_such_overload()),
    });
}

fn one_list<'s, 'a>(args: &'s [Value<'a>]) -> Result<&'s List<'a>, EvalError> {
    match args.first() {
        Some(Value::List(list)) => Ok(list),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn is_sorted<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    let values = one_list(args)?.to_values()?;
    // What has no order, such as numbers that are none, does not disturb it.
    let disordered =
        |pair: &[Value<'_>]| matches!(pair, [one, other] if is_order(one, other, Ordering::Greater));
    Ok(Value::Bool(!values.windows(2).any(disordered)))
}

fn is_order(one: &Value<'_>, other: &Value<'_>, order: Ordering) -> bool {
    compare(one, other) == Ok(order)
}

/// The first element that no other beats; `beaten` is how the best so far compares to a better one.
fn extremum<'a>(args: &[Value<'a>], name: &str, beaten: Ordering) -> EvalResult<'a> {
    let mut best: Option<Value<'a>> = None;
    for item in one_list(args)?.iter() {
        let item = item?;
        best = match best {
            Some(best) if !is_order(&best, &item, beaten) => Some(best),
            _ => Some(item),
        };
    }
    best.ok_or_else(|| EvalError::Failed(format!("{name} called on empty list")))
}

fn total<'a>(args: &[Value<'a>], zero: Value<'a>) -> EvalResult<'a> {
    one_list(args)?.iter().try_fold(zero, |sum, item| add(sum, item?))
}

fn index_of<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    let [Value::List(list), wanted] = args else { return Err(EvalError::no_such_overload()) };
    for (index, item) in list.iter().enumerate() {
        if equals(&item?, wanted)? {
            return Ok(Value::Int(index as i64));
        }
    }
    Ok(Value::Int(-1))
}

fn last_index_of<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    let [Value::List(list), wanted] = args else { return Err(EvalError::no_such_overload()) };
    let mut found = -1;
    for (index, item) in list.iter().enumerate() {
        if equals(&item?, wanted)? {
            found = index as i64;
        }
    }
    Ok(Value::Int(found))
}

/// `values` in the order of their `keys`; equal keys keep their order.
pub(crate) fn sort_by_keys<'a>(values: Vec<Value<'a>>, keys: Vec<Value<'a>>) -> EvalResult<'a> {
    if let Some(first) = keys.first() {
        let kind = first.type_of();
        if !COMPARABLE.contains(&kind) {
            return Err(EvalError::failed("list elements must be comparable"));
        }
        if keys.iter().any(|key| key.type_of() != kind) {
            return Err(EvalError::failed("list elements must have the same type"));
        }
    }
    let mut pairs: Vec<(Value<'a>, Value<'a>)> = keys.into_iter().zip(values).collect();
    // Doubles that are not numbers have no order; they stay where they are.
    pairs.sort_by(|(one, _), (other, _)| compare(one, other).unwrap_or(Ordering::Equal));
    Ok(Value::list(pairs.into_iter().map(|(_, value)| value).collect()))
}
