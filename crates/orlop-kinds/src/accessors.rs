//! Reading objects: what is absent reads as Go's zero value, as it does in Kubernetes' typed code.

use std::{collections::HashSet, hash::Hash};

use orlop_api::time::Time;
use serde_json::{Map, Value};

static NOTHING: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);

/// What a JSON pointer leads to. Pointers here are written in the code and have nothing escaped, so nothing is
/// allocated on the way: validation asks thousands of times.
fn find<'a>(value: &'a Value, pointer: &str) -> Option<&'a Value> {
    pointer.split('/').skip(1).try_fold(value, |value, key| match value {
        Value::Object(map) => map.get(key),
        Value::Array(items) => items.get(key.parse::<usize>().ok()?),
        _ => None,
    })
}

/// For each item, whether an earlier one has the same key. In one pass: lists are as long as clients like.
pub(crate) fn mark_repeated<'a, K: Eq + Hash>(items: &'a [Value], key: impl Fn(&'a Value) -> K) -> Vec<bool> {
    let mut seen = HashSet::new();
    items.iter().map(|item| !seen.insert(key(item))).collect()
}

/// What a JSON pointer leads to, unless it is null.
pub(crate) fn present<'a>(value: &'a Value, pointer: &str) -> Option<&'a Value> {
    find(value, pointer).filter(|found| !found.is_null())
}

/// Text, or none.
pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    find(value, pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Text, or what stands for its absence.
pub(crate) fn text_or<'a>(value: &'a Value, pointer: &str, absent: &'a str) -> &'a str {
    match text(value, pointer) {
        "" => absent,
        found => found,
    }
}

/// An integer, or zero.
pub(crate) fn integer(value: &Value, pointer: &str) -> i64 {
    find(value, pointer).and_then(Value::as_i64).unwrap_or_default()
}

/// A flag, or false.
pub(crate) fn flag(value: &Value, pointer: &str) -> bool {
    find(value, pointer) == Some(&Value::Bool(true))
}

/// A list, or an empty one.
pub(crate) fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    find(value, pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The texts of a list.
pub(crate) fn texts<'a>(value: &'a Value, pointer: &str) -> Vec<&'a str> {
    list(value, pointer).iter().filter_map(Value::as_str).collect()
}

/// A map, or an empty one.
pub(crate) fn map<'a>(value: &'a Value, pointer: &str) -> &'a Map<String, Value> {
    find(value, pointer).and_then(Value::as_object).unwrap_or(&NOTHING)
}

/// A moment.
pub(crate) fn time(value: &Value, pointer: &str) -> Option<Time> {
    Time::parse(text(value, pointer))
}

/// The condition of a type.
pub(crate) fn condition<'a>(value: &'a Value, kind: &str) -> Option<&'a Value> {
    list(value, "/status/conditions").iter().find(|condition| text(condition, "/type") == kind)
}

/// Whether the condition of a type holds.
pub(crate) fn is_condition_true(value: &Value, kind: &str) -> bool {
    condition(value, kind).is_some_and(|condition| text(condition, "/status") == "True")
}

/// An annotation, or none.
pub(crate) fn annotation<'a>(object: &'a Value, key: &str) -> &'a str {
    map(object, "/metadata/annotations").get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Whether an object is on its way out.
pub(crate) fn is_terminating(object: &Value) -> bool {
    present(object, "/metadata/deletionTimestamp").is_some()
}

/// A number or text, printed scalar_text: quantities and ports are either.
pub(crate) fn scalar_text(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) => "0".to_owned(),
        Some(other) => other.to_string(),
    }
}
