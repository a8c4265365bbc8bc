//! Conversion of untyped values to built-in types, as by Go's `runtime.DefaultUnstructuredConverter`.
//!
//! The result of a strategic merge patch goes this way, where every other body goes through the JSON decoder
//! ([`check_types`]). Both accept nearly the same, and word their errors differently.

use super::{
    AdditionalProperties, Schema, Type,
    typed_decode::{Expected, TypeMismatch, check_types, is_int32},
};
use crate::go_text;
use serde_json::{Number, Value};

/// A value that cannot be converted to its field's Go type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConversionError {
    /// Another type where a map belongs.
    #[error("cannot restore map from {0}")]
    Map(&'static str),
    /// Another type where a list belongs.
    #[error("cannot restore slice from {0}")]
    Slice(&'static str),
    /// Another type where a struct belongs.
    #[error("cannot restore struct from: {0}")]
    Struct(&'static str),
    /// A number that Go could convert, but does not.
    #[error("cannot convert {from} to {to}")]
    Scalar { from: &'static str, to: String },
    /// A value of a type that Go cannot convert to the scalar.
    #[error("unrecognized type: {0}")]
    Unrecognized(&'static str),
    /// A string that is not base64.
    #[error("error decoding from json: {0}")]
    Bytes(TypeMismatch),
    /// An error of a type that decodes itself: a time, a quantity, an IntOrString.
    #[error(transparent)]
    Decoder(TypeMismatch),
}

/// Converts every value to its field's type. Null is the zero value of any type. A float without a fraction becomes an
/// integer where one belongs.
pub fn convert_types(value: &mut Value, schema: &Schema) -> Result<(), ConversionError> {
    convert(value, Expected::of(schema))
}

fn convert(value: &mut Value, expected: Expected<'_>) -> Result<(), ConversionError> {
    let schema = expected.schema;
    if value.is_null() || schema.opaque {
        return Ok(());
    }
    if schema.int_or_string || matches!(schema.go_type, Some("Quantity" | "Time" | "MicroTime")) {
        // Encoded as JSON on the way, which drops a fraction of zero.
        drop_zero_fraction(value);
        return check_types(value, schema).map_err(ConversionError::Decoder);
    }
    match schema.kind {
        Type::Any => Ok(()),
        Type::Object => convert_object(value, expected),
        Type::Array => convert_array(value, expected),
        Type::String if schema.format.as_deref() == Some("byte") => convert_bytes(value, schema),
        Type::String => match value {
            Value::String(_) => Ok(()),
            Value::Number(number) if number.is_i64() => Err(scalar(value, expected)),
            _ => Err(ConversionError::Unrecognized("string")),
        },
        Type::Boolean if value.is_boolean() => Ok(()),
        Type::Boolean => Err(ConversionError::Unrecognized("bool")),
        Type::Number if value.is_number() => Ok(()),
        Type::Number => Err(ConversionError::Unrecognized("float64")),
        Type::Integer => convert_integer(value, expected),
    }
}

fn convert_object(value: &mut Value, expected: Expected<'_>) -> Result<(), ConversionError> {
    let inner = match &expected.schema.additional_properties {
        AdditionalProperties::Of(inner) => Some(inner.get()),
        _ => None,
    };
    let Value::Object(map) = value else {
        let kind = go_text::kind(value);
        return Err(if inner.is_some() { ConversionError::Map(kind) } else { ConversionError::Struct(kind) });
    };
    for (key, item) in map {
        if let Some(field) = expected.schema.field(key) {
            convert(item, Expected::of_field(field))?;
        } else if let Some(inner) = inner {
            convert(item, expected.item(inner))?;
        }
    }
    Ok(())
}

fn convert_array(value: &mut Value, expected: Expected<'_>) -> Result<(), ConversionError> {
    let Value::Array(items) = value else {
        return Err(ConversionError::Slice(go_text::kind(value)));
    };
    let Some(inner) = expected.schema.items() else { return Ok(()) };
    items.iter_mut().try_for_each(|item| convert(item, expected.item(inner)))
}

fn convert_bytes(value: &Value, schema: &Schema) -> Result<(), ConversionError> {
    match value {
        Value::String(_) => check_types(value, schema).map_err(ConversionError::Bytes),
        Value::Array(_) => check_types(value, schema).map_err(ConversionError::Decoder),
        _ => Err(ConversionError::Slice(go_text::kind(value))),
    }
}

fn convert_integer(value: &mut Value, expected: Expected<'_>) -> Result<(), ConversionError> {
    let is_int32 = expected.schema.format.as_deref() == Some("int32");
    drop_zero_fraction(value);
    match value {
        // Go wraps an integer that is out of range.
        Value::Number(number) if number.is_i64() && (!is_int32 || self::is_int32(number)) => Ok(()),
        Value::Number(_) => Err(scalar(value, expected)),
        _ => Err(ConversionError::Unrecognized(if is_int32 { "int32" } else { "int64" })),
    }
}

fn scalar(value: &Value, expected: Expected<'_>) -> ConversionError {
    ConversionError::Scalar { from: go_text::kind(value), to: expected.go_type() }
}

/// Turns `1.0` into `1`.
fn drop_zero_fraction(value: &mut Value) {
    const LIMIT: f64 = 9.0e15;
    let float = value.as_f64().filter(|float| value.is_f64() && float.fract() == 0.0 && float.abs() < LIMIT);
    if let Some(float) = float {
        // Exact: floats below the limit are integers of 53 bits.
        #[expect(clippy::cast_possible_truncation, reason = "the float is an integer below the limit")]
        let integer = float as i64;
        *value = Value::Number(Number::from(integer));
    }
}

#[cfg(test)]
mod tests {
    use super::super::builtin;
    use super::*;
    use serde_json::json;

    fn error(kind: (&str, &str, &str), mut value: Value) -> String {
        let schema = builtin::type_of(kind.0, kind.1, kind.2).unwrap().schema();
        convert_types(&mut value, schema).unwrap_err().to_string()
    }

    #[test]
    fn conversion_errors_match_go() {
        for (value, expected) in [
            (json!({"metadata": {"labels": "invalid"}}), "cannot restore map from string"),
            (json!({"metadata": {"labels": {"a": 1}}}), "cannot convert int64 to string"),
            (json!({"metadata": {"labels": {"a": 1.5}}}), "unrecognized type: string"),
            (json!({"metadata": {"labels": {"a": true}}}), "unrecognized type: string"),
            (json!({"metadata": 1}), "cannot restore struct from: int64"),
            (json!({"metadata": []}), "cannot restore struct from: slice"),
            (json!({"metadata": {"finalizers": {"a": "b"}}}), "cannot restore slice from map"),
            (
                json!({"metadata": {"creationTimestamp": 5}}),
                "json: cannot unmarshal number into Go value of type string",
            ),
            (
                json!({"metadata": {"creationTimestamp": "now"}}),
                r#"parsing time "now" as "2006-01-02T15:04:05Z07:00": cannot parse "now" as "2006""#,
            ),
            (json!({"kind": {}}), "unrecognized type: string"),
            (json!({"spec": {"replicas": "1"}}), "unrecognized type: int32"),
            (json!({"spec": {"replicas": 1.5}}), "cannot convert float64 to int32"),
            (json!({"spec": {"paused": 1}}), "unrecognized type: bool"),
            (json!({"spec": {"template": false}}), "cannot restore struct from: bool"),
            (
                json!({"spec": {"template": {"spec": {"containers": "a"}}}}),
                "cannot restore slice from string",
            ),
            (
                json!({"spec": {"template": {"spec": {"restartPolicy": 1}}}}),
                "cannot convert int64 to v1.RestartPolicy",
            ),
            (
                json!({"spec": {"strategy": {"rollingUpdate": {"maxSurge": true}}}}),
                "json: cannot unmarshal bool into Go value of type int32",
            ),
            (
                json!({"spec": {"template": {"spec": {"overhead": {"cpu": "x"}}}}}),
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            ),
        ] {
            assert_eq!(error(("apps", "v1", "Deployment"), value), expected);
        }
        assert_eq!(
            error(("", "v1", "Secret"), json!({"data": {"a": "!"}})),
            "error decoding from json: illegal base64 data at input byte 0"
        );
        assert_eq!(
            error(("", "v1", "Secret"), json!({"data": {"a": true}})),
            "cannot restore slice from bool"
        );
    }

    #[test]
    fn floats_without_a_fraction_are_integers() {
        let schema = builtin::type_of("apps", "v1", "Deployment").unwrap().schema();
        let mut value = json!({"spec": {"replicas": 2.0, "strategy": {"rollingUpdate": {"maxSurge": 1.0, "maxUnavailable": "1%"}}}});
        convert_types(&mut value, schema).unwrap();
        assert_eq!(
            value,
            json!({"spec": {"replicas": 2, "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": "1%"}}}})
        );
    }
}
