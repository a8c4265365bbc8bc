//! Type checks of built-in kinds, as in Go's decoder.

use super::{AdditionalProperties, Field, Schema, Type};
use crate::{
    go_text,
    quantity::{InvalidQuantity, Quantity},
    time::Time,
};
use serde_json::{Number, Value};
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
    check(value, Expected::of(schema), "", &mut Vec::new())
}

/// The type that a value must have.
#[derive(Clone, Copy)]
pub(super) struct Expected<'a> {
    pub(super) schema: &'a Schema,
    /// Go's name of the type, where the schema does not say it.
    named: Option<&'static str>,
}

impl<'a> Expected<'a> {
    pub(super) fn of(schema: &'a Schema) -> Self {
        Self { schema, named: None }
    }

    pub(super) fn of_field(field: &'a Field) -> Self {
        Self { schema: field.schema(), named: field.go.go_type }
    }

    /// Returns the type of the items of a list, or of the values of a map.
    pub(super) fn item(self, schema: &'a Schema) -> Self {
        let map = |name: &'static str| name.strip_prefix("map[")?.split_once(']').map(|(_, item)| item);
        let named = self.named.and_then(|name| name.strip_prefix("[]").or_else(|| map(name)));
        Self { schema, named: named.map(|name| name.trim_start_matches('*')) }
    }

    /// Returns true for a value of the type's JSON form.
    fn fits(self, value: &Value) -> Result<bool, TypeMismatch> {
        let Self { schema, .. } = self;
        Ok(match (schema.kind, value) {
            (Type::Any, Value::String(_)) if schema.int_or_string => true,
            (Type::Any, Value::Number(number)) if schema.int_or_string => is_int32(number),
            (Type::Any, _) => !schema.int_or_string,
            (Type::Object, Value::Object(_)) | (Type::Array, Value::Array(_)) => true,
            // Go takes a list of numbers for bytes, too.
            (Type::String, Value::Array(_)) => schema.format.as_deref() == Some("byte"),
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
                Some("int32") => is_int32(number),
                _ => number.as_i64().is_some(),
            },
            _ => false,
        })
    }

    pub(super) fn go_type(self) -> String {
        let Self { schema, named } = self;
        // These decode a string or a number themselves.
        if matches!(schema.go_type, Some("Time" | "MicroTime")) {
            return "string".to_owned();
        }
        if schema.int_or_string {
            return "int32".to_owned();
        }
        if let Some(name) = named {
            return name.to_owned();
        }
        match (schema.go_type, schema.kind) {
            (Some(name), _) => format!("v1.{name}"),
            (None, Type::String) if schema.format.as_deref() == Some("byte") => "[]uint8".to_owned(),
            (None, Type::String) => "string".to_owned(),
            (None, Type::Boolean) => "bool".to_owned(),
            (None, Type::Integer) if schema.format.as_deref() == Some("int32") => "int32".to_owned(),
            (None, Type::Integer) => "int64".to_owned(),
            (None, Type::Number) => "float64".to_owned(),
            (None, Type::Array) => format!("[]{}", self.item_go_type(schema.items())),
            (None, Type::Object) => {
                format!("map[string]{}", self.item_go_type(schema.additional_properties.schema()))
            }
            (None, Type::Any) => "interface {}".to_owned(),
        }
    }

    fn item_go_type(self, schema: Option<&Schema>) -> String {
        schema.map_or_else(|| "interface {}".to_owned(), |schema| Expected::of(schema).go_type())
    }
}

pub(super) fn is_int32(number: &Number) -> bool {
    number.as_i64().is_some_and(|integer| i32::try_from(integer).is_ok())
}

fn check<'a>(
    value: &'a Value,
    expected: Expected<'_>,
    go_struct: &str,
    path: &mut Vec<&'a str>,
) -> Result<(), TypeMismatch> {
    let schema = expected.schema;
    // Null is the zero value of any type; raw JSON is not looked into.
    if value.is_null() || schema.opaque {
        return Ok(());
    }
    if schema.go_type == Some("Quantity") {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        return Quantity::parse(&text).map(drop).map_err(TypeMismatch::Quantity);
    }
    if !expected.fits(value)? {
        let found = match value {
            // A number out of range is part of the message.
            Value::Number(number) if schema.kind == Type::Integer || schema.int_or_string => {
                format!("number {number}")
            }
            other => go_text::json_type(other).to_owned(),
        };
        let (go_struct, path) = (go_struct.to_owned(), path.join("."));
        return Err(TypeMismatch::Value { found, go_struct, path, go_type: expected.go_type() });
    }
    match value {
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
                    let length = path.len();
                    path.extend(field.go.embedded);
                    path.push(key);
                    check(item, Expected::of_field(field), inside, path)?;
                    path.truncate(length);
                } else if let AdditionalProperties::Of(inner) = &schema.additional_properties {
                    // Go's path names the map, not the key.
                    check(item, expected.item(inner.get()), go_struct, path)?;
                }
            }
        }
        Value::Array(items) if schema.kind == Type::String => {
            let is_byte = |item: &&Value| item.as_u64().is_some_and(|byte| byte <= 0xff);
            if let Some(other) = items.iter().find(|item| !is_byte(item)) {
                let (go_struct, path) = (go_struct.to_owned(), path.join("."));
                let found = go_text::json_type(other).to_owned();
                return Err(TypeMismatch::Value { found, go_struct, path, go_type: "uint8".to_owned() });
            }
        }
        Value::Array(items) => {
            let Some(inner) = schema.items() else { return Ok(()) };
            for item in items {
                check(item, expected.item(inner), go_struct, path)?;
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
                json!({"spec": {"template": {"spec": {"restartPolicy": 1}}}}),
                "json: cannot unmarshal number into Go struct field PodSpec.spec.template.spec.restartPolicy of type \
                 v1.RestartPolicy",
            ),
            (
                json!({"spec": {"strategy": {"rollingUpdate": {"maxSurge": 1.5}}}}),
                "json: cannot unmarshal number 1.5 into Go struct field \
                 RollingUpdateDeployment.spec.strategy.rollingUpdate.maxSurge of type int32",
            ),
            (
                json!({"spec": {"template": {"spec": {"overhead": {"cpu": true}}}}}),
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            ),
            (
                json!({"spec": {"template": {"spec": {"overhead": 1}}}}),
                "json: cannot unmarshal number into Go struct field PodSpec.spec.template.spec.overhead of type \
                 v1.ResourceList",
            ),
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
