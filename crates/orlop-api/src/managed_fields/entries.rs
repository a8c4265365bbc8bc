//! Decoding and encoding of `metadata.managedFields`.

use super::fields::Fields;
use crate::go_text::quote;
use crate::time::Time;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;

/// Operation that made a manager own fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    Apply,
    Update,
}

impl Operation {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// A field manager. An applier is the same in all versions, so its
/// `api_version` is empty here; updaters differ by version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Manager {
    pub name: String,
    pub operation: Operation,
    pub api_version: String,
    pub subresource: String,
}

impl Manager {
    pub fn new(name: &str, operation: Operation, api_version: &str, subresource: &str) -> Self {
        Self {
            name: if name.is_empty() { "unknown".to_owned() } else { name.to_owned() },
            operation,
            api_version: if operation == Operation::Apply { String::new() } else { api_version.to_owned() },
            subresource: subresource.to_owned(),
        }
    }
}

/// Formats a manager for conflicts: `"m"`, `"m" with subresource "status" using apps/v1`.
impl fmt::Display for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&quote(&self.name))?;
        if !self.subresource.is_empty() {
            write!(f, " with subresource {}", quote(&self.subresource))?;
        }
        if self.operation == Operation::Update {
            write!(f, " using {}", self.api_version)?;
        }
        Ok(())
    }
}

/// Field set of a manager in its version.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionedSet {
    pub api_version: String,
    pub fields: Fields,
    pub time: Option<Time>,
}

/// Managed fields of an object, by manager.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ManagedFields {
    pub entries: BTreeMap<Manager, VersionedSet>,
}

impl ManagedFields {
    /// Decodes `metadata.managedFields`; an invalid entry fails the list.
    pub fn decode(list: Vec<Value>) -> Result<Self, String> {
        let mut entries = BTreeMap::new();
        for (index, mut entry) in list.into_iter().enumerate() {
            let wire = entry.get_mut("fieldsV1").map(Value::take).unwrap_or_default();
            let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
            let operation = match text("operation") {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return Err("operation must be `Apply` or `Update`".to_owned()),
            };
            let api_version = text("apiVersion");
            if api_version.is_empty() {
                return Err("apiVersion must not be empty".to_owned());
            }
            match text("fieldsType") {
                "FieldsV1" => {}
                "" => return Err(format!("missing fieldsType in managed fields entry {index}")),
                other => {
                    return Err(format!(
                        "invalid fieldsType {} in managed fields entry {index}",
                        quote(other)
                    ));
                }
            }
            let fields = Fields::from_wire(wire).map_err(|error| {
                format!("error decoding versioned set from managed fields entry {index}: {error}")
            })?;
            let mut manager = Manager::new(text("manager"), operation, api_version, text("subresource"));
            text("manager").clone_into(&mut manager.name);
            let time = Time::parse(text("time"));
            entries.insert(manager, VersionedSet { api_version: api_version.to_owned(), fields, time });
        }
        Ok(Self { entries })
    }

    /// Decodes an object's managed fields; empty if absent.
    pub fn of(object: &Value) -> Result<Self, String> {
        match object.pointer("/metadata/managedFields").and_then(Value::as_array) {
            Some(list) => Self::decode(list.clone()),
            None => Ok(Self::default()),
        }
    }

    /// Removes managedFields from an object, so that they are not tracked themselves.
    pub fn take(object: &mut Value) -> Result<Self, String> {
        match take_list(object) {
            Some(list) => Self::decode(list),
            None => Ok(Self::default()),
        }
    }

    /// Encodes the list: appliers first, then by time, name, version, subresource.
    pub fn encode(self) -> Vec<Value> {
        let mut sorted: Vec<_> = self.entries.into_iter().collect();
        sorted.sort_by(|(left, left_set), (right, right_set)| {
            let seconds = |set: &VersionedSet| set.time.map_or(0, |time| time.unix_seconds);
            (left.operation, seconds(left_set), &left.name, &left_set.api_version, &left.subresource).cmp(&(
                right.operation,
                seconds(right_set),
                &right.name,
                &right_set.api_version,
                &right.subresource,
            ))
        });
        sorted.into_iter().map(|(manager, set)| encode_entry(&manager, set)).collect()
    }

    /// Writes managedFields into an object; an empty list is removed.
    pub fn store(self, object: &mut Value) {
        store_list(self.encode(), object);
    }
}

/// Writes encoded managedFields into an object; an empty list is removed.
pub fn store_list(list: Vec<Value>, object: &mut Value) {
    if list.is_empty() {
        remove_from(object);
        return;
    }
    let Some(object) = object.as_object_mut() else { return };
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.insert("managedFields".to_owned(), Value::Array(list));
    }
}

/// Removes managedFields from an object, so that they are not tracked themselves.
pub fn remove_from(object: &mut Value) {
    take_list(object);
}

fn take_list(object: &mut Value) -> Option<Vec<Value>> {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut)?;
    match metadata.remove("managedFields") {
        Some(Value::Array(list)) => Some(list),
        _ => None,
    }
}

/// Returns whether a client resets managedFields: an empty list, or one empty entry.
pub fn is_reset(object: &Value) -> bool {
    match object.pointer("/metadata/managedFields") {
        Some(Value::Array(list)) => match list.as_slice() {
            [] => true,
            [Value::Object(entry)] => entry.values().all(Value::is_null),
            _ => false,
        },
        _ => false,
    }
}

/// Returns whether two objects are equal, ignoring managedFields timestamps.
pub fn equal_ignoring_timestamps(left: &Value, right: &Value) -> bool {
    let (Some(left), Some(right)) = (left.as_object(), right.as_object()) else { return false };
    let metadata = (left.get("metadata"), right.get("metadata"));
    let (Some(Value::Object(left_meta)), Some(Value::Object(right_meta))) = metadata else { return false };
    let same_manager = |(left, right): (&Value, &Value)| match (left.as_object(), right.as_object()) {
        (Some(left), Some(right)) => equal_but("time", left, right),
        _ => left == right,
    };
    let (left_managers, right_managers) = (list(left_meta), list(right_meta));
    equal_but("metadata", left, right)
        && equal_but("managedFields", left_meta, right_meta)
        && left_managers.len() == right_managers.len()
        && left_managers.iter().zip(right_managers).all(same_manager)
}

/// Returns whether two maps are equal, ignoring one field.
fn equal_but(field: &str, left: &Map<String, Value>, right: &Map<String, Value>) -> bool {
    let is_other = |(name, _): &(&String, &Value)| *name != field;
    left.iter().filter(is_other).eq(right.iter().filter(is_other))
}

fn list(metadata: &Map<String, Value>) -> &[Value] {
    metadata.get("managedFields").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn encode_entry(manager: &Manager, set: VersionedSet) -> Value {
    let mut entry = Map::new();
    let mut put = |key: &str, text: &str| {
        if !text.is_empty() {
            entry.insert(key.to_owned(), text.into());
        }
    };
    put("manager", &manager.name);
    put("operation", manager.operation.as_str());
    put("apiVersion", &set.api_version);
    put("subresource", &manager.subresource);
    put("fieldsType", "FieldsV1");
    if let Some(time) = set.time {
        put("time", &time.to_string());
    }
    entry.insert("fieldsV1".to_owned(), set.fields.into_wire());
    Value::Object(entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(manager: &str, operation: &str, time: &str) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "time": time, "fieldsType": "FieldsV1", "fieldsV1": {"f:a": {}}})
    }

    #[test]
    fn entries_round_trip_in_order() {
        let list = [
            entry("b", "Apply", "2026-01-02T00:00:00Z"),
            entry("z", "Update", "2026-01-01T00:00:00Z"),
            entry("a", "Update", "2026-01-02T00:00:00Z"),
        ];
        let mut shuffled = list.to_vec();
        shuffled.reverse();
        assert_eq!(ManagedFields::decode(shuffled).unwrap().encode(), list);
    }

    #[test]
    fn applier_is_one_manager_in_all_versions() {
        let mut second = entry("a", "Apply", "2026-01-02T00:00:00Z");
        second["apiVersion"] = json!("v2");
        let managed = ManagedFields::decode(vec![entry("a", "Apply", ""), second.clone()]).unwrap();
        assert_eq!(managed.entries.len(), 1);
        assert_eq!(managed.encode(), [second]);
    }

    #[test]
    fn invalid_entries_are_refused() {
        for (key, value, message) in [
            ("operation", json!("Patch"), "operation must be `Apply` or `Update`"),
            ("apiVersion", json!(""), "apiVersion must not be empty"),
            ("fieldsType", json!(""), "missing fieldsType in managed fields entry 0"),
            ("fieldsType", json!("V2"), "invalid fieldsType \"V2\" in managed fields entry 0"),
            (
                "fieldsV1",
                json!({"x": {}}),
                "error decoding versioned set from managed fields entry 0: key must be 2 characters long:",
            ),
        ] {
            let mut broken = entry("a", "Apply", "");
            broken[key] = value;
            assert_eq!(ManagedFields::decode(vec![broken]).unwrap_err(), message);
        }
    }

    #[test]
    fn empty_list_resets_managed_fields() {
        for (list, expected) in
            [(json!([]), true), (json!([{}]), true), (json!([{"manager": "a"}]), false), (json!(null), false)]
        {
            assert_eq!(is_reset(&json!({"metadata": {"managedFields": list}})), expected);
        }
        assert!(!is_reset(&json!({"metadata": {}})));
    }
}
