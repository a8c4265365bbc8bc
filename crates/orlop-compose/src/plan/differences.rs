//! Fields in which two versions of an object differ.

use std::collections::BTreeSet;

use serde_json::Value as Json;

/// The fields in which two versions of an object differ, as `path: old -> new`.
pub(super) fn differences(live: &Json, planned: &Json) -> Vec<String> {
    let mut found = Vec::new();
    compare(live, planned, "", &mut found);
    found
}

/// Fields that change with every write or belong to others.
const IGNORED: [&str; 6] = [
    "metadata.resourceVersion",
    "metadata.generation",
    "metadata.managedFields",
    "metadata.creationTimestamp",
    "metadata.annotations.internal.kro.run/applied-hash",
    "status",
];

fn compare(old: &Json, new: &Json, path: &str, found: &mut Vec<String>) {
    if old == new || IGNORED.contains(&path) {
        return;
    }
    match (old, new) {
        (Json::Object(before), Json::Object(after)) => {
            let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            for name in names {
                let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                let field = |map: &serde_json::Map<String, Json>| map.get(name).cloned().unwrap_or_default();
                compare(&field(before), &field(after), &below, found);
            }
        }
        (Json::Array(before), Json::Array(after)) if before.len() == after.len() => {
            for (index, (before, after)) in before.iter().zip(after).enumerate() {
                compare(before, after, &format!("{path}[{index}]"), found);
            }
        }
        _ => found.push(format!("{path}: {old} -> {new}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_name_fields_and_ignore_the_servers() {
        let live = json!({"metadata": {"resourceVersion": "1", "labels": {"a": "1"}}, "spec": {"l": [1, 2]}, "status": {"x": 1}});
        let planned =
            json!({"metadata": {"resourceVersion": "2", "labels": {"a": "2"}}, "spec": {"l": [1, 3]}});
        assert_eq!(differences(&live, &planned), ["metadata.labels.a: \"1\" -> \"2\"", "spec.l[1]: 2 -> 3"]);
    }
}
