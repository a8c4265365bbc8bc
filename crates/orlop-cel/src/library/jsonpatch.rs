//! Keys of JSON pointers.

use crate::error::EvalError;
use crate::functions::Functions;
use crate::types::Type;
use crate::value::Value;

pub(crate) fn declare(f: &mut Functions) {
    let id = "string_jsonpatch_escapeKey_string";
    f.global("jsonpatch.escapeKey", id, [Type::String], Type::String, |_, args| match args {
        [Value::String(key)] => Ok(Value::string(key.replace('~', "~0").replace('/', "~1"))),
        _ => Err(EvalError::no_such_overload()),
    });
}
