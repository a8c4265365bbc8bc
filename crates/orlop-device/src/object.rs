//! Stored objects: Kubernetes JSON without the resource version.
//!
//! Updates change only the requested fields, so that those of another API (finalizers, owner references, managed fields)
//! stay.

use bytes::Bytes;
use orlop_api::{object_meta, time::Time};
use orlop_store::{KeyValue, Revision};
use serde_json::{Map, Value};

use crate::error::Error;

/// A version of an object.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) value: Value,
    /// The revision that wrote it. 0 before it is stored.
    pub(crate) revision: Revision,
}

impl Object {
    /// Decodes a stored version.
    pub(crate) fn read(kv: &KeyValue) -> Result<Self, Error> {
        let unreadable = || Error::Unreadable(kv.key.escape_ascii().to_string());
        let value: Value = serde_json::from_slice(&kv.value).map_err(|_| unreadable())?;
        if !value.is_object() {
            return Err(unreadable());
        }
        Ok(Self { value, revision: kv.revision })
    }

    /// Encodes the object with its metadata first: `orlop serve` splices the resource version in there without decoding.
    pub(crate) fn bytes(&self) -> Bytes {
        let parts = self.value.as_object().into_iter().flatten();
        let (meta, rest): (Vec<_>, Vec<_>) = parts.partition(|(name, _)| *name == "metadata");
        let parts =
            meta.into_iter().chain(rest).map(|(name, part)| format!("{}:{part}", Value::from(&**name)));
        format!("{{{}}}", parts.collect::<Vec<_>>().join(",")).into()
    }

    pub(crate) fn meta(&self) -> &Map<String, Value> {
        object_meta::of(&self.value)
    }

    /// Returns the metadata, which is inserted if absent.
    pub(crate) fn meta_mut(&mut self) -> &mut Map<String, Value> {
        object(entry(&mut self.value, "metadata"))
    }

    pub(crate) fn name(&self) -> &str {
        object_meta::text(self.meta(), "name")
    }

    pub(crate) fn labels(&self) -> Option<&Map<String, Value>> {
        self.meta().get("labels").and_then(Value::as_object)
    }

    pub(crate) fn generation(&self) -> i64 {
        self.meta().get("generation").and_then(Value::as_i64).unwrap_or_default()
    }

    /// Returns `spec` or `status`, null if absent.
    pub(crate) fn part(&self, name: &str) -> &Value {
        self.value.get(name).unwrap_or(&Value::Null)
    }

    /// Replaces `spec` or `status`. Null removes it.
    pub(crate) fn set_part(&mut self, name: &str, part: Value) {
        let parts = object(&mut self.value);
        if part.is_null() {
            parts.remove(name);
        } else {
            parts.insert(name.to_owned(), part);
        }
    }
}

fn entry<'a>(value: &'a mut Value, name: &str) -> &'a mut Value {
    object(value).entry(name).or_insert_with(|| Value::Object(Map::new()))
}

/// Returns the value as an object. Any other value is replaced by an empty object.
fn object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("made an object above"),
    }
}

/// Returns the time as in `creationTimestamp`.
pub(crate) fn now() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Time::from_unix(i64::try_from(since.as_secs()).unwrap_or_default()).to_string()
}
