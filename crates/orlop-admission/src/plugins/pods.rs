//! Parts of pods that several plugins read or change.

use serde_json::{Map, Value};

/// Pods, for plugins that handle nothing else.
pub(super) const PODS: &[(&str, &str)] = &[("", "pods")];

/// Lists of containers in a pod's spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Containers {
    Init,
    Main,
    Ephemeral,
}

impl Containers {
    /// Returns the name of the field.
    pub(super) fn field(self) -> &'static str {
        match self {
            Self::Init => "initContainers",
            Self::Main => "containers",
            Self::Ephemeral => "ephemeralContainers",
        }
    }

    /// Returns the containers of a spec.
    pub(super) fn of(self, spec: &Value) -> &[Value] {
        spec.get(self.field()).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// Returns the containers of a spec, to change them.
    pub(super) fn of_mut(self, spec: &mut Map<String, Value>) -> &mut [Value] {
        spec.get_mut(self.field()).and_then(Value::as_array_mut).map_or(&mut [], Vec::as_mut_slice)
    }
}

/// Returns the spec of an object; null if it has none.
pub(super) fn spec(object: &Value) -> &Value {
    object.get("spec").unwrap_or(&Value::Null)
}

/// Returns the spec of an object, to change it. One that has none is given one.
pub(super) fn spec_mut(object: &mut Value) -> &mut Map<String, Value> {
    map_mut(map_mut(object).entry("spec").or_insert(Value::Null))
}

/// Returns a map, to change it. Anything else becomes an empty one.
pub(super) fn map_mut(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("it was made a map"),
    }
}

/// Appends to a list of a map, which is made if it is absent.
pub(super) fn push(map: &mut Map<String, Value>, list: &str, item: Value) {
    match map.get_mut(list) {
        Some(Value::Array(items)) => items.push(item),
        _ => {
            map.insert(list.to_owned(), Value::Array(vec![item]));
        }
    }
}
