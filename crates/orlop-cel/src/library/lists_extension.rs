//! `slice`, `flatten`, `sort`, `distinct`, `reverse` and `lists.range`.

use crate::error::EvalError;
use crate::functions::{CallContext, EvalResult, Functions};
use crate::library::limit_elements;
use crate::library::lists::{COMPARABLE, sort_by_keys};
use crate::types::Type;
use crate::value::{Fingerprints, List, Value, fingerprint};

pub(crate) fn declare(f: &mut Functions) {
    let list = || Type::list(Type::param("T"));
    let any = || Type::list(Type::Dyn);
    f.member("slice", "list_slice", [list(), Type::Int, Type::Int], list(), slice);
    f.member("flatten", "list_flatten", [Type::list(list())], list(), flatten);
    f.member("flatten", "list_flatten_int", [any(), Type::Int], any(), flatten);
    f.member("reverse", "list_reverse", [list()], list(), reverse);
    f.member("distinct", "list_distinct", [list()], list(), distinct);
    f.global("lists.range", "lists_range", [Type::Int], Type::list(Type::Int), range);
    for ty in COMPARABLE {
        f.member("sort", &format!("list_{ty}_sort"), [Type::list(ty.clone())], Type::list(ty), sort);
    }
}

fn slice<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    let [Value::List(list), Value::Int(start), Value::Int(end)] = args else {
        return Err(EvalError::no_such_overload());
    };
    let problem = |reason: String| EvalError::Failed(format!("cannot slice({start}, {end}), {reason}"));
    let (Ok(from), Ok(to)) = (usize::try_from(*start), usize::try_from(*end)) else {
        return Err(problem("negative indexes not supported".to_owned()));
    };
    if from > to {
        return Err(problem("start index must be less than or equal to end index".to_owned()));
    }
    if to > list.len() {
        return Err(problem(format!("list is length {}", list.len())));
    }
    (from..to).map(|index| list.at(index)).collect::<Result<_, _>>().map(Value::list)
}

fn flatten<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    let (list, depth) = match args {
        [Value::List(list)] => (list, 1),
        [Value::List(list), Value::Int(depth)] => (list, *depth),
        _ => return Err(EvalError::no_such_overload()),
    };
    if depth < 0 {
        return Err(EvalError::failed("level must be non-negative"));
    }
    let mut flat = Vec::new();
    flatten_into(list, depth, &mut flat)?;
    Ok(Value::list(flat))
}

fn flatten_into<'a>(list: &List<'a>, depth: i64, flat: &mut Vec<Value<'a>>) -> Result<(), EvalError> {
    for item in list.iter() {
        match item? {
            Value::List(nested) if depth > 0 => flatten_into(&nested, depth - 1, flat)?,
            other => flat.push(other),
        }
        limit_elements("flatten", flat.len())?;
    }
    Ok(())
}

fn reverse<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    let [Value::List(list)] = args else { return Err(EvalError::no_such_overload()) };
    let mut values = list.to_values()?;
    values.reverse();
    Ok(Value::list(values))
}

fn distinct<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    let [Value::List(list)] = args else { return Err(EvalError::no_such_overload()) };
    let mut seen = Fingerprints::new();
    let mut kept = Vec::new();
    for item in list.iter() {
        let item = item?;
        if seen.insert(fingerprint(&item)?) {
            kept.push(item);
        }
    }
    Ok(Value::list(kept))
}

fn range<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    match args {
        [Value::Int(size)] if *size < 0 => {
            Err(EvalError::Failed(format!("lists.range: size must be non-negative, got {size}")))
        }
        [Value::Int(size)] => {
            limit_elements("lists.range", usize::try_from(*size).unwrap_or(usize::MAX))?;
            Ok(Value::list((0..*size).map(Value::Int).collect()))
        }
        _ => Err(EvalError::no_such_overload()),
    }
}

fn sort<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    let [Value::List(list)] = args else { return Err(EvalError::no_such_overload()) };
    let values = list.to_values()?;
    sort_by_keys(values.clone(), values)
}
