//! Functions of regular expressions. Patterns that are constants are compiled with the program.

use std::borrow::Cow;

use orlop_regex::Regex;

use crate::error::EvalError;
use crate::functions::{CallContext, EvalResult, Functions};
use crate::library::limit_elements;
use crate::types::Type;
use crate::value::Value;

/// Size limit of a pattern that is not a constant and is therefore compiled for each evaluation.
const DYNAMIC_BYTES_MAX: usize = 512 * 1024;

pub(crate) fn declare(f: &mut Functions) {
    let text = || Type::String;
    f.member("find", "string_find_string", [text(), text()], text(), find);
    f.member("findAll", "string_find_all_string", [text(), text()], Type::list(text()), find_all);
    let limited = [text(), text(), Type::Int];
    f.member("findAll", "string_find_all_string_int", limited, Type::list(text()), find_all);
}

/// Compiles a pattern that is a constant.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    orlop_regex::compile(pattern, orlop_regex::COMPILED_BYTES_MAX)
}

fn compiled<'p>(context: CallContext<'p>, pattern: &str) -> Result<Cow<'p, Regex>, EvalError> {
    match context.regex {
        Some(regex) => Ok(Cow::Borrowed(regex)),
        None => orlop_regex::compile(pattern, DYNAMIC_BYTES_MAX).map(Cow::Owned).map_err(EvalError::Failed),
    }
}

pub(crate) fn matches<'a>(context: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    match args {
        [Value::String(text), Value::String(pattern)] => {
            Ok(Value::Bool(compiled(context, pattern)?.is_match(text)))
        }
        _ => Err(EvalError::no_such_overload()),
    }
}

fn find<'a>(context: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    match args {
        [Value::String(text), Value::String(pattern)] => {
            let regex = illegal(compiled(context, pattern))?;
            Ok(Value::string(regex.find(text).map_or("", |found| found.as_str())))
        }
        _ => Err(EvalError::no_such_overload()),
    }
}

fn find_all<'a>(context: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    let (text, pattern, limit) = match args {
        [Value::String(text), Value::String(pattern)] => (text, pattern, usize::MAX),
        [Value::String(text), Value::String(pattern), Value::Int(limit)] => {
            // A negative limit means all.
            (text, pattern, usize::try_from(*limit).unwrap_or(usize::MAX))
        }
        _ => return Err(EvalError::no_such_overload()),
    };
    let regex = illegal(compiled(context, pattern))?;
    let mut found = Vec::new();
    for part in regex.find_iter(text).take(limit) {
        limit_elements("findAll", found.len() + 1)?;
        found.push(Value::string(part.as_str()));
    }
    Ok(Value::list(found))
}

fn illegal<T>(result: Result<T, EvalError>) -> Result<T, EvalError> {
    result.map_err(|error| EvalError::Failed(format!("Illegal regex: {error}")))
}
