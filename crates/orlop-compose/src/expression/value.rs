//! Results of expressions as JSON, by kro's rules.

use orlop_cel::{EvalError, Key, List, Map, Value};
use serde_json::Value as Json;

/// Name of the type that `omit()` returns.
pub(super) const OMIT: &str = "kro.Omit";

/// Converts a result to JSON; `None` stands for `omit()`.
pub(crate) fn to_json(value: &Value<'_>) -> Result<Option<Json>, EvalError> {
    Ok(Some(match value {
        Value::Null | Value::Optional(None) => Json::Null,
        Value::Uint(number) if i64::try_from(*number).is_err() => {
            return Err(EvalError::failed(format!("uint64 value {number} overflows int64")));
        }
        Value::Bytes(_) => {
            return Err(EvalError::failed(
                "bytes value cannot be used directly in a resource template or status field; encode it explicitly, \
                 e.g. base64.encode(...)",
            ));
        }
        Value::Optional(Some(value)) => return to_json(value),
        Value::Message(message) if message.message.name == OMIT => return Ok(None),
        Value::Type(_) | Value::Opaque(_) => {
            return Err(EvalError::failed(format!("unsupported type: {}", value.type_of().runtime_name())));
        }
        // What came from an object goes back as it was.
        Value::List(List::Json(items, _)) => Json::Array(items.to_vec()),
        Value::Map(Map::Json(entries, _)) => Json::Object((*entries).clone()),
        Value::List(list) => {
            let mut items = Vec::with_capacity(list.len());
            for item in list.iter() {
                items.extend(to_json(&item?)?);
            }
            Json::Array(items)
        }
        Value::Map(map) => {
            let mut object = serde_json::Map::new();
            for (key, value) in map.entries()? {
                let Key::String(name) = &key else {
                    let kind = key.to_value().type_of();
                    return Err(EvalError::failed(format!(
                        "map key must be string, got {}64",
                        kind.runtime_name()
                    )));
                };
                if let Some(value) = to_json(&value)? {
                    object.insert(name.to_string(), value);
                }
            }
            Json::Object(object)
        }
        other => other.to_json()?,
    }))
}
