//! JSON of objects as clients read it: without `metadata.managedFields`, which is most of a small object and which few
//! of them look at.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Decodes an object.
pub fn decode_object(json: &[u8]) -> serde_json::Result<Value> {
    decode(json, &["metadata", "managedFields"])
}

/// Decodes a list of objects.
pub fn decode_list(json: &[u8]) -> serde_json::Result<Value> {
    decode(json, &["items", "metadata", "managedFields"])
}

/// Decodes an event of a watch.
pub fn decode_event(json: &[u8]) -> serde_json::Result<Value> {
    decode(json, &["object", "metadata", "managedFields"])
}

/// Encodes a value.
pub fn encode(value: &Value) -> Vec<u8> {
    // Only a map whose keys are no strings cannot be encoded, and a vector takes everything.
    serde_json::to_vec(value).unwrap_or_default()
}

fn decode(json: &[u8], without: &[&str]) -> serde_json::Result<Value> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let value = Without(without).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Decodes a value without the field at a path. Elements of an array have the path of the array.
#[derive(Clone, Copy)]
struct Without<'p>(&'p [&'p str]);

impl<'de> DeserializeSeed<'de> for Without<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Without<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            match self.0 {
                [last] if name == *last => {
                    fields.next_value::<IgnoredAny>()?;
                }
                [first, rest @ ..] if name == *first => {
                    let value = fields.next_value_seed(Without(rest))?;
                    object.insert(name, value);
                }
                _ => {
                    let value = fields.next_value()?;
                    object.insert(name, value);
                }
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object() -> Value {
        json!({"metadata": {"name": "a", "managedFields": [{"manager": "m", "fieldsV1": {"f:data": {}}}]},
            "data": {"managedFields": "kept", "metadata": {"managedFields": "kept"}},
            "n": [null, true, -1, 18_446_744_073_709_551_615_u64, 1.5, "é\n"]})
    }

    fn without() -> Value {
        let mut object = object();
        object["metadata"] = json!({"name": "a"});
        object
    }

    #[test]
    fn objects_lists_and_events_lose_managed_fields_and_nothing_else() {
        assert_eq!(decode_object(object().to_string().as_bytes()).unwrap(), without());
        let list = json!({"metadata": {"managedFields": "of no object"}, "items": [object(), object()]});
        let mut expected = list.clone();
        expected["items"] = json!([without(), without()]);
        assert_eq!(decode_list(list.to_string().as_bytes()).unwrap(), expected);
        let event = json!({"type": "ADDED", "object": object()});
        let expected = json!({"type": "ADDED", "object": without()});
        assert_eq!(decode_event(event.to_string().as_bytes()).unwrap(), expected);
    }

    #[test]
    fn what_is_no_object_is_decoded_as_it_is_and_what_is_no_json_is_refused() {
        assert_eq!(decode_object(b"[1, null]").unwrap(), json!([1, null]));
        assert_eq!(decode_object(br#"{"metadata": null}"#).unwrap(), json!({"metadata": null}));
        assert!(decode_object(b"{} {}").is_err());
        assert!(decode_object(br#"{"metadata": {"managedFields": [}}"#).is_err());
        assert!(decode_object("[".repeat(10_000).as_bytes()).is_err());
    }
}
