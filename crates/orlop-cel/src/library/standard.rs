//! The language's own functions: operators' signatures, conversions, `size`, and tests on strings.

use crate::ast::operator as op;
use crate::error::EvalError;
use crate::functions::{CallContext, EvalResult, Functions};
use crate::library::{regex, timestamps};
use crate::number::{double_to_int, double_to_string, double_to_uint};
use crate::time::{Timestamp, parse_duration, parse_rfc3339};
use crate::types::Type;
use crate::value::Value;

/// Declares everything that every environment has.
pub(crate) fn declare(f: &mut Functions) {
    operators(f);
    comparisons(f);
    conversions(f);
    sizes(f);
    texts(f);
    timestamps::declare(f);
}

fn operators(f: &mut Functions) {
    let (a, b) = (|| Type::param("A"), || Type::param("B"));
    let list = || Type::list(Type::param("A"));
    let map = || Type::map(Type::param("A"), Type::param("B"));
    f.operator(op::CONDITIONAL, "conditional", [Type::Bool, a(), a()], a());
    f.operator(op::AND, "logical_and", [Type::Bool, Type::Bool], Type::Bool);
    f.operator(op::OR, "logical_or", [Type::Bool, Type::Bool], Type::Bool);
    f.operator(op::NOT, "logical_not", [Type::Bool], Type::Bool);
    f.operator(op::EQUALS, "equals", [a(), a()], Type::Bool);
    f.operator(op::NOT_EQUALS, "not_equals", [a(), a()], Type::Bool);
    f.operator(op::INDEX, "index_list", [list(), Type::Int], a());
    f.operator(op::INDEX, "index_map", [map(), a()], b());
    f.operator(op::IN, "in_list", [a(), list()], Type::Bool);
    f.operator(op::IN, "in_map", [a(), map()], Type::Bool);
    f.operator(op::NEGATE, "negate_double", [Type::Double], Type::Double);
    f.operator(op::NEGATE, "negate_int64", [Type::Int], Type::Int);
    f.operator(op::ADD, "add_bytes", [Type::Bytes, Type::Bytes], Type::Bytes);
    f.operator(op::ADD, "add_list", [list(), list()], list());
    f.operator(op::ADD, "add_string", [Type::String, Type::String], Type::String);
    for (name, id) in
        [(op::ADD, "add"), (op::SUBTRACT, "subtract"), (op::MULTIPLY, "multiply"), (op::DIVIDE, "divide")]
    {
        f.operator(name, &format!("{id}_double"), [Type::Double, Type::Double], Type::Double);
    }
    for (name, id) in [
        (op::ADD, "add"),
        (op::SUBTRACT, "subtract"),
        (op::MULTIPLY, "multiply"),
        (op::DIVIDE, "divide"),
        (op::MODULO, "modulo"),
    ] {
        f.operator(name, &format!("{id}_int64"), [Type::Int, Type::Int], Type::Int);
        f.operator(name, &format!("{id}_uint64"), [Type::Uint, Type::Uint], Type::Uint);
    }
    let (time, span) = (|| Type::Timestamp, || Type::Duration);
    f.operator(op::ADD, "add_duration_duration", [span(), span()], span());
    f.operator(op::ADD, "add_duration_timestamp", [span(), time()], time());
    f.operator(op::ADD, "add_timestamp_duration", [time(), span()], time());
    f.operator(op::SUBTRACT, "subtract_duration_duration", [span(), span()], span());
    f.operator(op::SUBTRACT, "subtract_timestamp_duration", [time(), span()], time());
    f.operator(op::SUBTRACT, "subtract_timestamp_timestamp", [time(), time()], span());
}

const COMPARISONS: [(&str, &str); 4] = [
    (op::LESS, "less"),
    (op::LESS_EQUALS, "less_equals"),
    (op::GREATER, "greater"),
    (op::GREATER_EQUALS, "greater_equals"),
];

fn comparisons(f: &mut Functions) {
    for (name, id) in COMPARISONS {
        for ty in [
            Type::Bool,
            Type::Int,
            Type::Uint,
            Type::Double,
            Type::String,
            Type::Bytes,
            Type::Timestamp,
            Type::Duration,
        ] {
            f.operator(name, &format!("{id}_{ty}"), [ty.clone(), ty], Type::Bool);
        }
    }
}

/// Comparisons between numbers of different types.
pub(crate) fn declare_cross_type(f: &mut Functions) {
    let numbers = [Type::Int, Type::Uint, Type::Double];
    for (name, id) in COMPARISONS {
        for one in &numbers {
            for other in numbers.iter().filter(|other| *other != one) {
                f.operator(name, &format!("{id}_{one}_{other}"), [one.clone(), other.clone()], Type::Bool);
            }
        }
    }
}

fn conversions(f: &mut Functions) {
    let any = || Type::param("A");
    f.global("type", "type", [any()], Type::of(any()), |_, args| match args {
        [value] => Ok(Value::Type(value.type_of())),
        _ => Err(EvalError::no_such_overload()),
    });
    f.global("dyn", "to_dyn", [any()], Type::Dyn, same);
    let bool_from = [(Type::Bool, "bool_to_bool"), (Type::String, "string_to_bool")];
    let bytes_from = [(Type::Bytes, "bytes_to_bytes"), (Type::String, "string_to_bytes")];
    let double_from = [
        (Type::Double, "double_to_double"),
        (Type::Int, "int64_to_double"),
        (Type::String, "string_to_double"),
        (Type::Uint, "uint64_to_double"),
    ];
    let duration_from = [(Type::Duration, "duration_to_duration"), (Type::String, "string_to_duration")];
    let int_from = [
        (Type::Int, "int64_to_int64"),
        (Type::Double, "double_to_int64"),
        (Type::Duration, "duration_to_int64"),
        (Type::String, "string_to_int64"),
        (Type::Timestamp, "timestamp_to_int64"),
        (Type::Uint, "uint64_to_int64"),
    ];
    let string_from = [
        (Type::String, "string_to_string"),
        (Type::Bool, "bool_to_string"),
        (Type::Bytes, "bytes_to_string"),
        (Type::Double, "double_to_string"),
        (Type::Duration, "duration_to_string"),
        (Type::Int, "int64_to_string"),
        (Type::Timestamp, "timestamp_to_string"),
        (Type::Uint, "uint64_to_string"),
    ];
    let timestamp_from = [
        (Type::Timestamp, "timestamp_to_timestamp"),
        (Type::Int, "int64_to_timestamp"),
        (Type::String, "string_to_timestamp"),
    ];
    let uint_from = [
        (Type::Uint, "uint64_to_uint64"),
        (Type::Double, "double_to_uint64"),
        (Type::Int, "int64_to_uint64"),
        (Type::String, "string_to_uint64"),
    ];
    bool_from.into_iter().for_each(|(from, id)| f.global("bool", id, [from], Type::Bool, to_bool));
    bytes_from.into_iter().for_each(|(from, id)| f.global("bytes", id, [from], Type::Bytes, to_bytes));
    double_from.into_iter().for_each(|(from, id)| f.global("double", id, [from], Type::Double, to_double));
    duration_from
        .into_iter()
        .for_each(|(from, id)| f.global("duration", id, [from], Type::Duration, to_duration));
    int_from.into_iter().for_each(|(from, id)| f.global("int", id, [from], Type::Int, to_int));
    string_from.into_iter().for_each(|(from, id)| f.global("string", id, [from], Type::String, to_string));
    timestamp_from
        .into_iter()
        .for_each(|(from, id)| f.global("timestamp", id, [from], Type::Timestamp, to_timestamp));
    uint_from.into_iter().for_each(|(from, id)| f.global("uint", id, [from], Type::Uint, to_uint));
}

fn same<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    args.first().cloned().ok_or_else(EvalError::no_such_overload)
}

fn conversion_error(from: &str, to: &str) -> EvalError {
    EvalError::Failed(format!("type conversion error from '{from}' to '{to}'"))
}

fn to_bool<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    match args {
        [value @ Value::Bool(_)] => Ok(value.clone()),
        [Value::String(text)] => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => Err(conversion_error("string", "bool")),
        },
        _ => Err(EvalError::no_such_overload()),
    }
}

fn to_bytes<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    match args {
        [value @ Value::Bytes(_)] => Ok(value.clone()),
        [Value::String(text)] => Ok(Value::bytes(text.as_bytes())),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn to_double<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    match args {
        [value @ Value::Double(_)] => Ok(value.clone()),
        [Value::Int(value)] => Ok(Value::Double(*value as f64)),
        [Value::Uint(value)] => Ok(Value::Double(*value as f64)),
        [Value::String(text)] => {
            let number = text.parse::<f64>().ok().filter(|number| !number.is_infinite() || is_word(text));
            number.map(Value::Double).ok_or_else(|| conversion_error("string", "double"))
        }
        _ => Err(EvalError::no_such_overload()),
    }
}

/// Returns whether the text spells infinity, as opposed to an overflow.
fn is_word(text: &str) -> bool {
    text.trim_start_matches(['+', '-']).starts_with(|first: char| first.is_ascii_alphabetic())
}

fn to_duration<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    match args {
        [value @ Value::Duration(_)] => Ok(value.clone()),
        [Value::String(text)] => parse_duration(text)
            .map(Value::Duration)
            .ok_or_else(|| conversion_error("string", "google.protobuf.Duration")),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn to_int<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    let overflow = || EvalError::failed("integer overflow");
    match args {
        [value @ Value::Int(_)] => Ok(value.clone()),
        [Value::Double(value)] => double_to_int(*value).map(Value::Int).ok_or_else(overflow),
        [Value::Uint(value)] => i64::try_from(*value).map(Value::Int).map_err(|_| overflow()),
        [Value::Duration(value)] => Ok(Value::Int(value.nanos)),
        [Value::Timestamp(value)] => Ok(Value::Int(value.seconds)),
        [Value::String(text)] => text.parse().map(Value::Int).map_err(|_| conversion_error("string", "int")),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn to_uint<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    let overflow = || EvalError::failed("unsigned integer overflow");
    match args {
        [value @ Value::Uint(_)] => Ok(value.clone()),
        [Value::Double(value)] => double_to_uint(*value).map(Value::Uint).ok_or_else(overflow),
        [Value::Int(value)] => u64::try_from(*value).map(Value::Uint).map_err(|_| overflow()),
        [Value::String(text)] if text.bytes().all(|b| b.is_ascii_digit()) => {
            text.parse().map(Value::Uint).map_err(|_| conversion_error("string", "uint"))
        }
        [Value::String(_)] => Err(conversion_error("string", "uint")),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn to_string<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    match args {
        [value @ Value::String(_)] => Ok(value.clone()),
        [Value::Bool(value)] => Ok(Value::borrowed(if *value { "true" } else { "false" })),
        [Value::Int(value)] => Ok(Value::string(value.to_string())),
        [Value::Uint(value)] => Ok(Value::string(value.to_string())),
        [Value::Double(value)] => Ok(Value::string(double_to_string(*value))),
        [Value::Timestamp(value)] => Ok(Value::string(value.to_string())),
        [Value::Duration(value)] => Ok(Value::string(value.to_string())),
        [Value::Bytes(bytes)] => std::str::from_utf8(bytes)
            .map(Value::string)
            .map_err(|_| EvalError::failed("invalid UTF-8 in bytes, cannot convert to string")),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn to_timestamp<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    match args {
        [value @ Value::Timestamp(_)] => Ok(value.clone()),
        [Value::Int(seconds)] => Timestamp::new(*seconds, 0).map(Value::Timestamp),
        [Value::String(text)] => parse_rfc3339(text)
            .map(Value::Timestamp)
            .ok_or_else(|| conversion_error("string", "google.protobuf.Timestamp")),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn sizes(f: &mut Functions) {
    for (ty, id) in [
        (Type::Bytes, "size_bytes"),
        (Type::list(Type::param("A")), "size_list"),
        (Type::map(Type::param("A"), Type::param("B")), "size_map"),
        (Type::String, "size_string"),
    ] {
        f.global("size", id, [ty.clone()], Type::Int, size);
        f.member("size", &format!("{id}_inst"), [ty], Type::Int, size);
    }
}

fn size<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    match args {
        [value @ (Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_))] => {
            Ok(Value::Int(value.cost_size() as i64))
        }
        _ => Err(EvalError::no_such_overload()),
    }
}

fn texts(f: &mut Functions) {
    let two = || [Type::String, Type::String];
    f.member("contains", "contains_string", two(), Type::Bool, |_, args| {
        text_test(args, |text, part| text.contains(part))
    });
    f.member("startsWith", "starts_with_string", two(), Type::Bool, |_, args| {
        text_test(args, |text, part| text.starts_with(part))
    });
    f.member("endsWith", "ends_with_string", two(), Type::Bool, |_, args| {
        text_test(args, |text, part| text.ends_with(part))
    });
    f.global("matches", "matches", two(), Type::Bool, regex::matches);
    f.member("matches", "matches_string", two(), Type::Bool, regex::matches);
}

fn text_test<'a>(args: &[Value<'a>], test: fn(&str, &str) -> bool) -> EvalResult<'a> {
    match args {
        [Value::String(text), Value::String(part)] => Ok(Value::Bool(test(text, part))),
        _ => Err(EvalError::no_such_overload()),
    }
}
