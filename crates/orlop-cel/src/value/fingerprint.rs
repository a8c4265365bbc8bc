//! Fingerprints: equal if and only if the values are equal.
//!
//! Sets, distinct elements and lists with keys are compared by hashing fingerprints, because comparing every element
//! with every other takes too long for lists as long as a request allows, whatever it costs on paper.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::{List, Map, Value};
use crate::error::EvalError;
use crate::number::{double_to_int, double_to_uint};

/// Fingerprints of elements.
pub(crate) type Fingerprints = HashSet<String>;

/// The fingerprint of a value.
pub(crate) fn fingerprint(value: &Value<'_>) -> Result<String, EvalError> {
    let mut out = String::new();
    write_value(value, &mut out)?;
    Ok(out)
}

/// The fingerprints of all elements of a list.
pub(crate) fn fingerprints(list: &List<'_>) -> Result<Fingerprints, EvalError> {
    list.iter().map(|item| fingerprint(&item?)).collect()
}

/// The fingerprint of the keys of an element of a list with keys.
pub(crate) fn key_fingerprint(element: &Value<'_>, keys: &[String]) -> Result<String, EvalError> {
    let Value::Map(map) = element else {
        return Err(EvalError::failed(
            "unexpected data format for element of array with x-kubernetes-list-type=map",
        ));
    };
    let mut out = String::new();
    for key in keys {
        match map.get_json_name(key) {
            Some(value) => write_value(&value?, &mut out)?,
            None => out.push('?'),
        }
        out.push(',');
    }
    Ok(out)
}

fn write_value(value: &Value<'_>, out: &mut String) -> Result<(), EvalError> {
    // Writing to a string cannot fail.
    let _ = match value {
        Value::Int(value) => write!(out, "n{value}"),
        Value::Uint(value) => write!(out, "n{value}"),
        // Doubles that are whole numbers equal integers.
        Value::Double(value) => match (double_to_int(*value), double_to_uint(*value)) {
            (Some(whole), _) if whole as f64 == *value => write!(out, "n{whole}"),
            (_, Some(whole)) if whole as f64 == *value => write!(out, "n{whole}"),
            _ => write!(out, "f{:x}", value.to_bits()),
        },
        // The length keeps texts from running into what follows.
        Value::String(text) => write!(out, "s{}:{}", text.len(), &**text),
        Value::Bytes(bytes) => write!(out, "b{bytes:?}"),
        Value::Timestamp(time) => write!(out, "t{}.{}", time.seconds, time.nanos),
        Value::Duration(duration) => write!(out, "d{}", duration.nanos),
        Value::List(list) => return write_list(list, out),
        Value::Map(map) => return write_map(map, out),
        Value::Optional(Some(value)) => {
            out.push('o');
            return write_value(value, out);
        }
        Value::Message(message) => {
            let _ = write!(out, "m{}{{", message.message.name);
            let mut fields: Vec<_> = message.fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            for (name, value) in fields {
                let _ = write!(out, "{name}:");
                write_value(value, out)?;
            }
            write!(out, "}}")
        }
        other => write!(out, "{}({other:?})", other.type_of().runtime_name()),
    };
    Ok(())
}

fn write_list(list: &List<'_>, out: &mut String) -> Result<(), EvalError> {
    out.push('[');
    for item in list.iter() {
        write_value(&item?, out)?;
        out.push(',');
    }
    out.push(']');
    Ok(())
}

fn write_map(map: &Map<'_>, out: &mut String) -> Result<(), EvalError> {
    let mut entries = map.entries()?;
    entries.sort_by(|(one, _), (other, _)| one.cmp(other));
    out.push('{');
    for (key, value) in entries {
        write_value(&key.to_value(), out)?;
        out.push(':');
        write_value(&value, out)?;
        out.push(',');
    }
    out.push('}');
    Ok(())
}
