//! Optional values.

use crate::ast::operator;
use crate::error::EvalError;
use crate::functions::{CallContext, EvalResult, Functions};
use crate::types::Type;
use crate::value::Value;

pub(crate) fn declare(f: &mut Functions) {
    let (k, v) = (|| Type::param("K"), || Type::param("V"));
    let some = || Type::optional(Type::param("V"));
    let list = || Type::list(Type::param("V"));
    let map = || Type::map(k(), v());
    f.global("optional.of", "optional_of", [v()], some(), |_, args| match args {
        [value] => Ok(Value::some(value.clone())),
        _ => Err(EvalError::no_such_overload()),
    });
    f.global("optional.ofNonZeroValue", "optional_ofNonZeroValue", [v()], some(), |_, args| match args {
        [value] if value.is_zero() => Ok(Value::none()),
        [value] => Ok(Value::some(value.clone())),
        _ => Err(EvalError::no_such_overload()),
    });
    f.global("optional.none", "optional_none", [], some(), |_, _| Ok(Value::none()));
    f.member("hasValue", "optional_hasValue", [some()], Type::Bool, |_, args| match args {
        [Value::Optional(value)] => Ok(Value::Bool(value.is_some())),
        _ => Err(EvalError::no_such_overload()),
    });
    f.member("value", "optional_value", [some()], v(), |_, args| match args {
        [Value::Optional(Some(value))] => Ok(Value::clone(value)),
        [Value::Optional(None)] => Err(EvalError::failed("optional.none() dereference")),
        _ => Err(EvalError::no_such_overload()),
    });
    // Evaluated by dedicated nodes, which evaluate the alternative lazily.
    f.member("or", "optional_or_optional", [some(), some()], some(), |_, _| {
        Err(EvalError::no_such_overload())
    });
    f.member("orValue", "optional_orValue_value", [some(), v()], v(), |_, _| {
        Err(EvalError::no_such_overload())
    });
    let index = operator::OPT_INDEX;
    f.operator(index, "list_optindex_optional_int", [list(), Type::Int], some());
    f.operator(index, "optional_list_optindex_optional_int", [Type::optional(list()), Type::Int], some());
    f.operator(index, "map_optindex_optional_value", [map(), k()], some());
    f.operator(index, "optional_map_optindex_optional_value", [Type::optional(map()), k()], some());
    f.operator(operator::INDEX, "optional_list_index_int", [Type::optional(list()), Type::Int], some());
    f.operator(operator::INDEX, "optional_map_index_value", [Type::optional(map()), k()], some());
    f.member("first", "list_first", [list()], some(), |_, args| end(args, |_| 0));
    f.member("last", "list_last", [list()], some(), |_, args| end(args, |length| length - 1));
    let optionals = || Type::list(Type::optional(Type::param("V")));
    f.global("optional.unwrap", "optional_unwrap", [optionals()], list(), unwrap);
    f.member("unwrapOpt", "optional_unwrapOpt", [optionals()], list(), unwrap);
}

fn end<'a>(args: &[Value<'a>], index: fn(usize) -> usize) -> EvalResult<'a> {
    match args {
        [Value::List(list)] if list.is_empty() => Ok(Value::none()),
        [Value::List(list)] => list.at(index(list.len())).map(Value::some),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn unwrap<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    let [Value::List(list)] = args else { return Err(EvalError::no_such_overload()) };
    let mut values = Vec::new();
    for item in list.iter() {
        match item? {
            Value::Optional(Some(value)) => values.push(Value::clone(&value)),
            Value::Optional(None) => {}
            other => return Err(EvalError::Failed(format!("value {other} is not optional"))),
        }
    }
    Ok(Value::list(values))
}
