//! Keeps a write through one endpoint of an object from what the others own.

use serde_json::Value;

use super::Request;
use crate::registry::UpdateScope;

/// Whether an endpoint speaks of the object itself, and not of something else such as its scale.
pub(super) fn is_object(subresource: &str) -> bool {
    matches!(subresource, "" | "status" | "finalize" | "approval" | "ephemeralcontainers" | "resize")
}

/// Restores everything that the request's endpoint does not own.
pub(super) fn isolate(request: &Request, object: &mut Value, old: &Value) {
    keep(request.kind.update_scope(&request.about.subresource), object, old);
}

/// The version that a client is sure of is compared, and who owns what was written down for this write.
const OF_THE_WRITE: [&str; 2] = ["/metadata/resourceVersion", "/metadata/managedFields"];

fn keep(scope: UpdateScope, object: &mut Value, old: &Value) {
    // Most endpoints keep a part or two, for which nothing need be set aside.
    let taken = !scope.except.is_empty() || scope.preserved.contains(&"/metadata");
    let new = taken.then(|| object.clone());
    for path in scope.preserved {
        copy(object, old, &steps(path));
    }
    if let Some(new) = new {
        for path in scope.except.iter().chain(&OF_THE_WRITE) {
            copy(object, &new, &steps(path));
        }
    }
}

fn steps(path: &str) -> Vec<&str> {
    path.split('/').skip(1).collect()
}

/// Makes a part of an object what it is in another: the same, or absent. `*` stands for every item of a list
/// whose items are the same ones by name; of another list, all is taken, for validation to refuse.
fn copy(to: &mut Value, from: &Value, path: &[&str]) {
    match path {
        [] => to.clone_from(from),
        ["*", rest @ ..] => match (to, from) {
            (Value::Array(to), Value::Array(from)) if same_items(to, from) => {
                to.iter_mut().zip(from).for_each(|(to, from)| copy(to, from, rest));
            }
            (to, from) => to.clone_from(from),
        },
        [step, rest @ ..] => {
            let Value::Object(to) = to else { return };
            match from.get(step) {
                Some(from) => {
                    let absent = if rest.is_empty() { Value::Null } else { serde_json::json!({}) };
                    copy(to.entry(*step).or_insert(absent), from, rest);
                }
                None if rest.is_empty() => drop(to.remove(*step)),
                None => {
                    if let Some(to) = to.get_mut(*step) {
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
    fn a_part_of_an_object_becomes_what_it_is_in_another() {
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
            copy(&mut changed, &from, &steps(path));
            assert_eq!(changed, expected, "{path} of {to}");
        }
    }
}
