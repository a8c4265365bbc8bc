//! Atomic lists, maps and structs of a value.

use super::typed::{Atom, TypeRef};
use serde_json::Value;

/// Returns the paths of the atomic lists, maps and structs in a value. Entries of maps without declared fields are not
/// searched.
pub fn atomic_paths(value: &Value, of: TypeRef<'_>) -> Vec<String> {
    let mut found = Vec::new();
    walk(value, of, &mut String::new(), &mut found);
    found
}

fn walk(value: &Value, of: TypeRef<'_>, path: &mut String, found: &mut Vec<String>) {
    let length = path.len();
    match (of.atom(Some(value)), value) {
        (Atom::Map(atom), Value::Object(map)) => {
            if atom.atomic {
                found.push(path.clone());
            }
            for (key, item) in map {
                let entry = atom.entry(key);
                if let Some(of) = entry.of.filter(|_| entry.declared) {
                    path.push('.');
                    path.push_str(key);
                    walk(item, of, path, found);
                    path.truncate(length);
                }
            }
        }
        (Atom::List(atom), Value::Array(items)) => {
            if atom.is_atomic() {
                found.push(path.clone());
            }
            for (index, item) in items.iter().enumerate() {
                path.push_str(&format!("[{index}]"));
                walk(item, atom.item, path, found);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::builtin;
    use serde_json::json;

    #[test]
    fn atomics_of_a_pod_are_found() {
        let pod = builtin::type_of("", "v1", "Pod").unwrap().schema();
        let paths = |value: Value| atomic_paths(&value, TypeRef::resource(pod));
        assert_eq!(paths(json!({"metadata": {"labels": {"a": "b"}}, "spec": {"nodeName": "n"}})), [""; 0]);
        let spec = json!({"nodeSelector": {"a": "b"}, "containers": [{"name": "c", "command": ["x"]}]});
        assert_eq!(paths(json!({"spec": spec})), [".spec.containers[0].command", ".spec.nodeSelector"]);
    }
}
