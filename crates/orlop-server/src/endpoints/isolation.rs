//! Restricts a write through one endpoint of an object to the fields that the endpoint may change.

use serde_json::Value;

use super::Request;
use crate::registry::UpdateScope;

/// Restores the fields that the request's endpoint may not change.
pub(super) fn isolate(request: &Request, object: &mut Value, old: &Value) {
    preserve(request.kind.update_scope(request.attributes.subresource_name()), object, old);
}

/// Fields of the write itself: the resourceVersion precondition and the managed fields just recorded.
const WRITE_FIELDS: [&str; 2] = ["/metadata/resourceVersion", "/metadata/managedFields"];

fn preserve(scope: UpdateScope, object: &mut Value, old: &Value) {
    // Most endpoints restore a field or two, and need no copy.
    let needs_copy = !scope.except.is_empty() || scope.preserved.contains(&"/metadata");
    let new = needs_copy.then(|| object.clone());
    for path in scope.preserved {
        copy(object, old, &segments(path));
    }
    if let Some(new) = new {
        for path in scope.except.iter().chain(&WRITE_FIELDS) {
            copy(object, &new, &segments(path));
        }
    }
}

fn segments(path: &str) -> Vec<&str> {
    path.split('/').skip(1).collect()
}

/// Copies the field at a path from one object to another, or removes it. `*` stands for every item of a list
/// whose items have the same names; a list with other items is copied whole, for validation to refuse.
fn copy(to: &mut Value, from: &Value, path: &[&str]) {
    match path {
        [] => to.clone_from(from),
        ["*", rest @ ..] => match (to, from) {
            (Value::Array(to), Value::Array(from)) if same_items(to, from) => {
                to.iter_mut().zip(from).for_each(|(to, from)| copy(to, from, rest));
            }
            (to, from) => to.clone_from(from),
        },
        [segment, rest @ ..] => {
            let Value::Object(to) = to else { return };
            match from.get(segment) {
                Some(from) => {
                    let absent = if rest.is_empty() { Value::Null } else { serde_json::json!({}) };
                    copy(to.entry(*segment).or_insert(absent), from, rest);
                }
                None if rest.is_empty() => drop(to.remove(*segment)),
                None => {
                    if let Some(to) = to.get_mut(*segment) {
                        copy(to, &Value::Null, rest);
                    }
                }
            }
        }
    }
}

fn same_items(one: &[Value], other: &[Value]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.get("name") == other.get("name"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn copy_replaces_the_field_at_a_path() {
        let from =
            json!({"metadata": {"name": "x"}, "spec": {"a": 1, "items": [{"name": "i", "r": 1, "q": 1}]}});
        for (path, to, expected) in [
            ("/spec/a", json!({"spec": {"a": 9, "b": 9}}), json!({"spec": {"a": 1, "b": 9}})),
            ("/spec/a", json!({}), json!({"spec": {"a": 1}})),
            ("/spec/b", json!({"spec": {"b": 9}}), json!({"spec": {}})),
            ("/status", json!({"status": {"s": 1}}), json!({})),
            (
                "/status/conditions",
                json!({"status": {"conditions": [], "s": 1}}),
                json!({"status": {"s": 1}}),
            ),
            ("/status/conditions", json!({}), json!({})),
            (
                "/spec/items/*/r",
                json!({"spec": {"items": [{"name": "i", "r": 5, "q": 5}]}}),
                json!({"spec": {"items": [{"name": "i", "r": 1, "q": 5}]}}),
            ),
            (
                "/spec/items/*/r",
                json!({"spec": {"items": [{"name": "other", "r": 5, "q": 5}]}}),
                json!({"spec": {"items": [{"name": "i", "r": 1, "q": 1}]}}),
            ),
            ("", json!({"status": 1}), from.clone()),
        ] {
            let mut changed = to.clone();
            copy(&mut changed, &from, &segments(path));
            assert_eq!(changed, expected, "{path} of {to}");
        }
    }
}
