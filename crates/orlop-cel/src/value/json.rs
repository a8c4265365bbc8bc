//! Reading JSON as the schema says, and writing values as JSON.

use serde_json::{Number, Value as Json};

use super::{Key, List, Map, Value};
use crate::error::EvalError;
use crate::library::encoders;
use crate::number::double_to_int;
use crate::schema::{Schema, Shape};
use crate::time;

pub(super) fn read<'a>(json: &'a Json, schema: Option<&'a Schema>) -> Result<Value<'a>, EvalError> {
    let Some(schema) = schema else { return Ok(untyped(json)) };
    let node = &*schema.node;
    if matches!(node.shape, Shape::Dyn) {
        return Ok(untyped(json));
    }
    if json.is_null() {
        return match node.nullable {
            true => Ok(Value::Null),
            false => Err(EvalError::failed("invalid data, got null for schema with nullable=false")),
        };
    }
    match (&node.shape, json) {
        (Shape::Object { .. } | Shape::Map { .. }, Json::Object(entries)) => {
            Ok(Value::Map(Map::Json(entries, Some(schema))))
        }
        (Shape::List { .. }, Json::Array(items)) => Ok(Value::List(List::Json(items, Some(schema)))),
        (Shape::Bool, Json::Bool(value)) => Ok(Value::Bool(*value)),
        (Shape::String, Json::String(text)) => Ok(Value::borrowed(text)),
        (Shape::Int, Json::Number(number)) => {
            whole(number).map(Value::Int).ok_or_else(|| wrong(&node.shape, json))
        }
        (Shape::Double, Json::Number(number)) => {
            number.as_f64().map(Value::Double).ok_or_else(|| wrong(&node.shape, json))
        }
        (Shape::IntOrString, Json::String(text)) => Ok(Value::borrowed(text)),
        (Shape::IntOrString, Json::Number(number)) => {
            whole(number).map(Value::Int).ok_or_else(|| wrong(&node.shape, json))
        }
        (Shape::Duration, Json::String(text)) => {
            time::parse_loose_duration(text).map(Value::Duration).ok_or_else(|| {
                EvalError::Failed(format!("Invalid duration {text}: unable to parse as duration"))
            })
        }
        (Shape::Date, Json::String(text)) => time::parse_date(text)
            .map(Value::Timestamp)
            .ok_or_else(|| EvalError::Failed(format!("Invalid date formatted string {text}: cannot parse"))),
        (Shape::DateTime, Json::String(text)) => {
            time::parse_rfc3339(text).map(Value::Timestamp).ok_or_else(|| {
                EvalError::Failed(format!("Invalid date-time formatted string {text}: cannot parse"))
            })
        }
        (Shape::Bytes, Json::String(text)) => {
            encoders::base64_decode(text).map(Value::bytes).ok_or_else(|| {
                EvalError::Failed(format!("Invalid byte formatted string {text}: illegal base64 data"))
            })
        }
        (shape, json) => Err(wrong(shape, json)),
    }
}

fn untyped(json: &Json) -> Value<'_> {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => match number.as_i64() {
            Some(value) => Value::Int(value),
            None => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::borrowed(text),
        Json::Array(items) => Value::List(List::Json(items, None)),
        Json::Object(entries) => Value::Map(Map::Json(entries, None)),
    }
}

/// A number as an integer, also where it is written `1.0`.
fn whole(number: &Number) -> Option<i64> {
    number.as_i64().or_else(|| {
        let double = number.as_f64()?;
        double_to_int(double).filter(|whole| *whole as f64 == double)
    })
}

fn wrong(shape: &Shape, json: &Json) -> EvalError {
    let found = match json {
        Json::Null => "null",
        Json::Bool(_) => "bool",
        Json::Number(number) if number.is_f64() => "float64",
        Json::Number(_) => "int64",
        Json::String(_) => "string",
        Json::Array(_) => "[]interface {}",
        Json::Object(_) => "map[string]interface {}",
    };
    EvalError::Failed(match shape {
        Shape::Object { .. } | Shape::Map { .. } => {
            "invalid data, expected a map for the provided schema with type=object".to_owned()
        }
        Shape::List { .. } => {
            "invalid data, expected an array for the provided schema with type=array".to_owned()
        }
        Shape::IntOrString => {
            "invalid data, expected XIntOrString value to be either a string or integer".to_owned()
        }
        Shape::Bool => format!("invalid data, expected bool, got {found}"),
        Shape::Int => format!("invalid data, expected int, got {found}"),
        Shape::Double => format!("invalid data, expected float, got {found}"),
        _ => format!("invalid data, expected string, got {found}"),
    })
}

pub(super) fn write(value: &Value<'_>) -> Result<Json, EvalError> {
    Ok(match value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Int(value) => Json::from(*value),
        Value::Uint(value) => Json::from(*value),
        Value::Double(value) => Number::from_f64(*value)
            .map(Json::Number)
            .ok_or_else(|| EvalError::Failed(format!("{value} cannot be written as JSON")))?,
        Value::String(text) => Json::from(&**text),
        Value::Bytes(bytes) => Json::from(encoders::base64_encode(bytes)),
        Value::Timestamp(time) => Json::from(time.to_string()),
        Value::Duration(duration) => Json::from(duration.to_string()),
        // What came from the document goes back as it was, undeclared fields included.
        Value::List(List::Json(items, _)) => Json::Array(items.to_vec()),
        Value::Map(Map::Json(entries, _)) => Json::Object(Clone::clone(entries)),
        Value::List(list) => Json::Array(list.iter().map(|item| write(&item?)).collect::<Result<_, _>>()?),
        Value::Map(map) => {
            let mut object = serde_json::Map::new();
            for (key, value) in map.entries()? {
                let Key::String(name) = key else {
                    return Err(EvalError::Failed(format!("map key {key} is not a string")));
                };
                object.insert(name.to_string(), write(&value)?);
            }
            Json::Object(object)
        }
        Value::Message(message) => {
            let fields = message.fields.iter().map(|(name, value)| Ok(((*name).to_owned(), write(value)?)));
            Json::Object(fields.collect::<Result<_, EvalError>>()?)
        }
        Value::Optional(Some(value)) => write(value)?,
        Value::Optional(None) | Value::Type(_) | Value::Opaque(_) => {
            return Err(EvalError::Failed(format!(
                "{} cannot be written as JSON",
                value.type_of().runtime_name()
            )));
        }
    })
}
