//! Nested fields by dotted paths, with apimachinery's error texts.

use orlop_api::go_text;
use serde_json::{Map, Value};

/// Splits `.spec.replicas` into fields.
pub(crate) fn fields(path: &str) -> Vec<&str> {
    path.strip_prefix('.').unwrap_or(path).split('.').collect()
}

/// Returns the value at a path; an error if an ancestor is not an object.
pub(crate) fn get<'v>(object: &'v Value, fields: &[&str]) -> Result<Option<&'v Value>, String> {
    let mut value = object;
    for (index, field) in fields.iter().enumerate() {
        match value {
            Value::Null => return Ok(None),
            Value::Object(map) => match map.get(*field) {
                Some(next) => value = next,
                None => return Ok(None),
            },
            other => return Err(wrong_type(other, fields.iter().take(index + 1), "map[string]interface{}")),
        }
    }
    Ok(Some(value))
}

/// Returns the integer at a path.
pub(crate) fn integer(object: &Value, path: &str) -> Result<Option<i64>, String> {
    let fields = fields(path);
    match get(object, &fields)? {
        None => Ok(None),
        Some(Value::Number(number)) if number.is_i64() => Ok(number.as_i64()),
        Some(other) => Err(wrong_type(other, fields.iter(), "int64")),
    }
}

/// Returns the string at a path.
pub(crate) fn string<'v>(object: &'v Value, path: &str) -> Result<Option<&'v str>, String> {
    let fields = fields(path);
    match get(object, &fields)? {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(wrong_type(other, fields.iter(), "string")),
    }
}

/// Sets the value at a path and creates missing ancestors.
pub(crate) fn set(object: &mut Value, path: &str, value: Value) -> Result<(), String> {
    let fields = fields(path);
    let Some((last, parents)) = fields.split_last() else { return Ok(()) };
    let mut target = object;
    for (index, field) in parents.iter().enumerate() {
        let refused = || {
            format!(
                "value cannot be set because {} is not a map[string]interface{{}}",
                dotted(parents.iter().take(index + 1))
            )
        };
        let Value::Object(map) = target else { return Err(refused()) };
        target = map.entry(*field).or_insert_with(|| Value::Object(Map::new()));
        if !target.is_object() {
            return Err(refused());
        }
    }
    if let Value::Object(map) = target {
        map.insert((*last).to_owned(), value);
    }
    Ok(())
}

fn dotted<'a>(fields: impl Iterator<Item = &'a &'a str>) -> String {
    fields.fold(String::new(), |path, field| path + "." + field)
}

fn wrong_type<'a>(value: &Value, path: impl Iterator<Item = &'a &'a str>, expected: &str) -> String {
    let (shown, kind) = (go_text::display(value), go_text::type_name(value));
    format!("{} accessor error: {shown} is of the type {kind}, expected {expected}", dotted(path))
}
