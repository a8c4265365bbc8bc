//! What each endpoint of an object may write. The object itself, its status, its approval and so on are
//! the same object in the store; a write to one leaves what the others own as it was.

use serde_json::Value;

use super::Request;

/// Whether an endpoint speaks of the object itself, and not of something else such as its scale.
pub(super) fn is_object(subresource: &str) -> bool {
    matches!(subresource, "" | "status" | "finalize" | "approval" | "ephemeralcontainers" | "resize")
}

/// Restores everything that the request's endpoint does not own.
pub(super) fn isolate(request: &Request, object: &mut Value, old: &Value) {
    let kind = &request.kind;
    match request.about.subresource.as_str() {
        "" if kind.has_status() => restore(object, old, "/status"),
        "" => {}
        "status" if kind.rules.custom => only(object, old, &["/status"]),
        "status" => only(object, old, &["/metadata", "/status"]),
        "finalize" => only(object, old, &["/spec/finalizers"]),
        "approval" => only(object, old, &["/metadata", "/status/conditions"]),
        "ephemeralcontainers" => only(object, old, &["/spec/ephemeralContainers"]),
        "resize" => only(object, old, &["/spec/containers", "/spec/initContainers"]),
        _ => {}
    }
}

/// The old object with only these parts taken from the new one.
fn only(object: &mut Value, old: &Value, taken: &[&str]) {
    let mut result = old.clone();
    for path in taken {
        set(&mut result, path, object.pointer(path).cloned());
    }
    // A version that the client was sure of must survive, to be compared.
    let version = object.pointer("/metadata/resourceVersion").cloned();
    set(&mut result, "/metadata/resourceVersion", version);
    *object = result;
}

fn restore(object: &mut Value, old: &Value, path: &str) {
    set(object, path, old.pointer(path).cloned());
}

/// Sets a field, or removes it. Objects on the way are made where they are missing.
fn set(object: &mut Value, path: &str, value: Option<Value>) {
    let Some((parent, field)) = path.rsplit_once('/') else { return };
    let mut place = object;
    for step in parent.split('/').filter(|step| !step.is_empty()) {
        let Some(map) = place.as_object_mut() else { return };
        place = map.entry(step).or_insert_with(|| Value::Object(serde_json::Map::new()));
    }
    let Some(map) = place.as_object_mut() else { return };
    match value {
        Some(value) => drop(map.insert(field.to_owned(), value)),
        None => drop(map.remove(field)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_endpoint_takes_only_what_is_its_own() {
        let old = json!({"metadata": {"name": "x", "resourceVersion": "3"}, "spec": {"a": 1, "b": 2}});
        let mut new = json!({"metadata": {"name": "y"}, "spec": {"a": 9, "b": 9}, "status": {"s": 1}});
        only(&mut new, &old, &["/spec/b", "/status"]);
        assert_eq!(new, json!({"metadata": {"name": "x"}, "spec": {"a": 1, "b": 9}, "status": {"s": 1}}));
        restore(&mut new, &old, "/status");
        assert_eq!(new.get("status"), None);
    }
}
