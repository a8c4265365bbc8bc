//! Field accessors by JSON pointer. An absent field reads as Go's zero value, as in Kubernetes' typed code.

use std::{collections::HashSet, hash::Hash};

use orlop_api::time::Time;
use serde_json::{Map, Value};

static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);

/// Returns the value at a JSON pointer. Pointers are literals without escapes, so this allocates nothing:
/// validation calls it thousands of times.
fn find<'a>(value: &'a Value, pointer: &str) -> Option<&'a Value> {
    pointer.split('/').skip(1).try_fold(value, |value, key| match value {
        Value::Object(map) => map.get(key),
        Value::Array(items) => items.get(key.parse::<usize>().ok()?),
        _ => None,
    })
}

/// Returns, for each item, whether an earlier one has the same key. One pass, because clients choose the length.
pub fn mark_repeated<'a, K: Eq + Hash>(items: &'a [Value], key: impl Fn(&'a Value) -> K) -> Vec<bool> {
    let mut seen = HashSet::new();
    items.iter().map(|item| !seen.insert(key(item))).collect()
}

/// Returns the value at a JSON pointer, unless it is null.
pub fn present<'a>(value: &'a Value, pointer: &str) -> Option<&'a Value> {
    find(value, pointer).filter(|found| !found.is_null())
}

/// Returns a string; empty if absent.
pub fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    find(value, pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns a string, or `absent` if it is absent or empty.
pub fn text_or<'a>(value: &'a Value, pointer: &str, absent: &'a str) -> &'a str {
    match text(value, pointer) {
        "" => absent,
        found => found,
    }
}

/// Returns an integer; zero if absent.
pub fn integer(value: &Value, pointer: &str) -> i64 {
    find(value, pointer).and_then(Value::as_i64).unwrap_or_default()
}

/// Returns a boolean; false if absent.
pub fn flag(value: &Value, pointer: &str) -> bool {
    find(value, pointer) == Some(&Value::Bool(true))
}

/// Returns a list; empty if absent.
pub fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    find(value, pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the strings of a list.
pub fn texts<'a>(value: &'a Value, pointer: &str) -> Vec<&'a str> {
    list(value, pointer).iter().filter_map(Value::as_str).collect()
}

/// Returns a map; empty if absent.
pub fn map<'a>(value: &'a Value, pointer: &str) -> &'a Map<String, Value> {
    find(value, pointer).and_then(Value::as_object).unwrap_or(&EMPTY)
}

/// Returns a timestamp.
pub fn time(value: &Value, pointer: &str) -> Option<Time> {
    Time::parse(text(value, pointer))
}

/// Returns the status condition of a type.
pub fn condition<'a>(value: &'a Value, kind: &str) -> Option<&'a Value> {
    list(value, "/status/conditions").iter().find(|condition| text(condition, "/type") == kind)
}

/// Returns true if the status condition of a type is `True`.
pub fn is_condition_true(value: &Value, kind: &str) -> bool {
    condition(value, kind).is_some_and(|condition| text(condition, "/status") == "True")
}

/// Returns an annotation; empty if absent.
pub fn annotation<'a>(object: &'a Value, key: &str) -> &'a str {
    map(object, "/metadata/annotations").get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Returns true if the object has a deletionTimestamp.
pub fn is_terminating(object: &Value) -> bool {
    present(object, "/metadata/deletionTimestamp").is_some()
}

/// Returns a number or string without quotes: quantities and ports may be either.
pub fn scalar_text(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) => "0".to_owned(),
        Some(other) => other.to_string(),
    }
}
