//! Lists taken as sets.

use crate::error::EvalError;
use crate::functions::{EvalResult, Functions};
use crate::types::Type;
use crate::value::{Fingerprints, Value, fingerprints};

pub(crate) fn declare(f: &mut Functions) {
    let two = || [Type::list(Type::param("T")), Type::list(Type::param("T"))];
    f.global("sets.contains", "list_sets_contains_list", two(), Type::Bool, |_, args| {
        test(args, Fingerprints::is_superset)
    });
    f.global("sets.equivalent", "list_sets_equivalent_list", two(), Type::Bool, |_, args| {
        test(args, |one, other| one == other)
    });
    f.global("sets.intersects", "list_sets_intersects_list", two(), Type::Bool, |_, args| {
        test(args, |one, other| !one.is_disjoint(other))
    });
}

type Test = fn(&Fingerprints, &Fingerprints) -> bool;

fn test<'a>(args: &[Value<'a>], test: Test) -> EvalResult<'a> {
    match args {
        [Value::List(one), Value::List(other)] => {
            Ok(Value::Bool(test(&fingerprints(one)?, &fingerprints(other)?)))
        }
        _ => Err(EvalError::no_such_overload()),
    }
}
