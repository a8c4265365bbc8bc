//! Type checks of built-in kinds, as in Go's decoder.

use super::{AdditionalProperties, Schema, Type};
use crate::{
    quantity::{InvalidQuantity, Quantity},
    time::Time,
};
use serde_json::Value;
use std::fmt;

/// A value that does not fit its field's Go type; a 400.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeMismatch {
    /// A value of another type.
    Value { found: String, go_struct: String, path: String, go_type: String },
    /// A string that is not a time.
    Time { text: String, micro: bool },
    /// A string that is not base64, and the offset of the error.
    Base64 { position: usize },
    /// A string that is not a quantity.
    Quantity(InvalidQuantity),
}

impl fmt::Display for TypeMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (found, go_struct, path, go_type) = match self {
            Self::Value { found, go_struct, path, go_type } => (found, go_struct, path, go_type),
            Self::Time { text, micro } => return write!(f, "{}", go_time_error(text, *micro)),
            Self::Base64 { position } => {
                return write!(f, "illegal base64 data at input byte {position}");
            }
            Self::Quantity(why) => return write!(f, "{why}"),
        };
        if path.is_empty() {
            return write!(f, "json: cannot unmarshal {found} into Go value of type {go_type}");
        }
        write!(f, "json: cannot unmarshal {found} into Go struct field {go_struct}.{path} of type {go_type}")
    }
}

impl std::error::Error for TypeMismatch {}

/// Checks that every value has its field's type. Null is the zero value of any type.
pub fn check_types(value: &Value, schema: &Schema) -> Result<(), TypeMismatch> {
    check(value, schema, "", &mut Vec::new())
}

fn check<'a>(
    value: &'a Value,
    schema: &Schema,
    go_struct: &str,
    path: &mut Vec<&'a str>,
) -> Result<(), TypeMismatch> {
    let fits = match (schema.kind, value) {
        (_, Value::Null) => return Ok(()),
        (Type::Any, Value::Number(_) | Value::String(_)) if schema.int_or_string => true,
        (Type::Any, _) => !schema.int_or_string,
        (Type::Object, Value::Object(_)) | (Type::Array, Value::Array(_)) => true,
        (Type::String, Value::String(text)) if schema.format.as_deref() == Some("byte") => {
            if !text.is_empty() && !super::matches_format("byte", text) {
                return Err(TypeMismatch::Base64 { position: illegal_base64(text) });
            }
            true
        }
        (Type::String, Value::String(_)) => true,
        (Type::Boolean, Value::Bool(_)) => true,
        (Type::Number, Value::Number(_)) => true,
        (Type::Integer, Value::Number(number)) => match schema.format.as_deref() {
            Some("int32") => number.as_i64().is_some_and(|integer| i32::try_from(integer).is_ok()),
            _ => number.as_i64().is_some(),
        },
        _ => false,
    };
    if !fits {
        let found = match value {
            Value::Bool(_) => "bool".to_owned(),
            // A number out of range is part of the message.
            Value::Number(number) if schema.kind == Type::Integer => format!("number {number}"),
            Value::Number(_) => "number".to_owned(),
            Value::String(_) => "string".to_owned(),
            Value::Array(_) => "array".to_owned(),
            _ => "object".to_owned(),
        };
        return Err(TypeMismatch::Value {
            found,
            go_struct: go_struct.to_owned(),
            path: path.join("."),
            go_type: go_type(schema),
        });
    }
    match value {
        Value::String(text) if schema.go_type == Some("Quantity") => {
            return Quantity::parse(text).map(drop).map_err(TypeMismatch::Quantity);
        }
        Value::String(text)
            if matches!(schema.go_type, Some("Time" | "MicroTime")) && Time::parse(text).is_none() =>
        {
            let micro = schema.go_type == Some("MicroTime");
            return Err(TypeMismatch::Time { text: text.clone(), micro });
        }
        Value::Object(map) => {
            let inside = schema.go_type.unwrap_or(go_struct);
            for (key, item) in map {
                if let Some(field) = schema.field(key) {
                    path.push(key);
                    check(item, field.schema(), inside, path)?;
                    path.pop();
                } else if let AdditionalProperties::Of(inner) = &schema.additional_properties {
                    // Go's path names the map, not the key.
                    check(item, inner.get(), go_struct, path)?;
                }
            }
        }
        Value::Array(items) => {
            let Some(inner) = schema.items() else { return Ok(()) };
            for item in items {
                check(item, inner, go_struct, path)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Returns the offset at which Go's decoder stops: the first byte outside the alphabet, or the end.
fn illegal_base64(text: &str) -> usize {
    let alphabet = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'\r' | b'\n');
    text.bytes().position(|byte| !alphabet(byte)).unwrap_or(text.len())
}

/// Returns the error of Go's `time.Parse`: the layout element that did not match, and the text in its place.
fn go_time_error(text: &str, micro: bool) -> String {
    let layout = if micro { "2006-01-02T15:04:05.000000Z07:00" } else { "2006-01-02T15:04:05Z07:00" };
    let mut rest = text;
    for part in ["2006", "-", "01", "-", "02", "T", "15", ":", "04", ":", "05"] {
        let found = rest.get(..part.len()).filter(|found| {
            let is_number = part.bytes().all(|byte| byte.is_ascii_digit());
            if is_number { found.bytes().all(|byte| byte.is_ascii_digit()) } else { *found == part }
        });
        if found.is_none() {
            return format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {part:?}");
        }
        rest = &rest[part.len()..];
    }
    let number = |from: usize| text.get(from..from + 2).and_then(|digits| digits.parse::<u32>().ok());
    for (from, max, name) in [(5, 12, "month"), (11, 23, "hour"), (14, 59, "minute"), (17, 59, "second")] {
        if number(from).is_none_or(|found| found > max || (from == 5 && found == 0)) {
            return format!("parsing time {text:?}: {name} out of range");
        }
    }
    let zone = rest.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    match zone {
        "Z" => format!("parsing time {text:?}: day out of range"),
        zone => format!("parsing time {text:?} as {layout:?}: cannot parse {zone:?} as \"Z07:00\""),
    }
}

fn go_type(schema: &Schema) -> String {
    match (schema.go_type, schema.kind) {
        (Some("Time" | "MicroTime"), _) => "v1.Time".to_owned(),
        (Some(name), _) => format!("v1.{name}"),
        (None, Type::String) if schema.format.as_deref() == Some("byte") => "[]uint8".to_owned(),
        (None, Type::String) => "string".to_owned(),
        (None, Type::Boolean) => "bool".to_owned(),
        (None, Type::Integer) if schema.format.as_deref() == Some("int32") => "int32".to_owned(),
        (None, Type::Integer) => "int64".to_owned(),
        (None, Type::Number) => "float64".to_owned(),
        (None, Type::Array) => {
            format!("[]{}", schema.items().map_or_else(|| "interface {}".to_owned(), go_type))
        }
        (None, Type::Object) => format!(
            "map[string]{}",
            schema.additional_properties.schema().map_or_else(|| "interface {}".to_owned(), go_type)
        ),
        (None, Type::Any) if schema.int_or_string => "intstr.IntOrString".to_owned(),
        (None, Type::Any) => "interface {}".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::builtin;
    use super::*;
    use serde_json::json;

    #[test]
    fn type_mismatches_match_go() {
        let schema = builtin::type_of("apps", "v1", "Deployment").unwrap().schema();
        for (value, expected) in [
            (
                json!({"spec": {"replicas": "3"}}),
                "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
            ),
            (
                json!({"spec": {"replicas": 3_000_000_000_i64}}),
                "json: cannot unmarshal number 3000000000 into Go struct field DeploymentSpec.spec.replicas of type int32",
            ),
            (
                json!({"spec": {"paused": "yes"}}),
                "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.paused of type bool",
            ),
            (
                json!({"metadata": {"labels": {"a": 1}}}),
                "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
            ),
            (
                json!({"spec": {"template": {"spec": {"containers": [{"env": [{"value": 5}]}]}}}}),
                "json: cannot unmarshal number into Go struct field EnvVar.spec.template.spec.containers.env.value of type string",
            ),
            (
                json!({"spec": {"template": {"spec": {"containers": {}}}}}),
                "json: cannot unmarshal object into Go struct field PodSpec.spec.template.spec.containers of type []v1.Container",
            ),
            (json!([]), "json: cannot unmarshal array into Go value of type v1.Deployment"),
            (
                json!({"metadata": {"creationTimestamp": "yesterday"}}),
                r#"parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006""#,
            ),
            (
                json!({"metadata": {"creationTimestamp": "2026-13-01T00:00:00Z"}}),
                r#"parsing time "2026-13-01T00:00:00Z": month out of range"#,
            ),
            (
                json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00"}}),
                r#"parsing time "2026-01-01T00:00:00" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00""#,
            ),
        ] {
            assert_eq!(check_types(&value, schema).unwrap_err().to_string(), expected);
        }
        let good = json!({"spec": {"replicas": null, "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}}, "template": {"spec": {"containers": [{"resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}]}}}});
        assert_eq!(check_types(&good, schema), Ok(()));
    }
}
