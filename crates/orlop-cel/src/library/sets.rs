//! Lists taken as sets.

use crate::error::EvalError;
use crate::functions::{Functions, Outcome};
use crate::types::Type;
use crate::value::{List, Value};

pub(crate) fn declare(f: &mut Functions) {
    let two = || [Type::list(Type::param("T")), Type::list(Type::param("T"))];
    f.global("sets.contains", "list_sets_contains_list", two(), Type::Bool, |_, args| test(args, contains));
    f.global("sets.equivalent", "list_sets_equivalent_list", two(), Type::Bool, |_, args| {
        test(args, |one, other| Ok(contains(one, other)? && contains(other, one)?))
    });
    f.global("sets.intersects", "list_sets_intersects_list", two(), Type::Bool, |_, args| {
        test(args, intersects)
    });
}

type Test = fn(&List<'_>, &List<'_>) -> Result<bool, EvalError>;

fn test<'a>(args: &[Value<'a>], test: Test) -> Outcome<'a> {
    match args {
        [Value::List(one), Value::List(other)] => test(one, other).map(Value::Bool),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn contains(list: &List<'_>, part: &List<'_>) -> Result<bool, EvalError> {
    for item in part.iter() {
        if !list.contains(&item?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn intersects(one: &List<'_>, other: &List<'_>) -> Result<bool, EvalError> {
    for item in one.iter() {
        if other.contains(&item?)? {
            return Ok(true);
        }
    }
    Ok(false)
}
