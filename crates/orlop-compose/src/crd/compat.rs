//! Changes of a CRD that break objects or clients.

use std::collections::BTreeSet;

use serde_json::Value as Json;

/// A breaking change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Where, for example `spec.replicas`.
    pub path: String,
    /// Code, for example `TYPE_CHANGED`.
    pub code: &'static str,
    /// Text for the author.
    pub message: String,
}

/// Returns the changes from `old` to `new` that break something.
pub fn breaking_changes(old: &Json, new: &Json) -> Vec<Change> {
    let mut changes = Vec::new();
    let versions =
        |crd: &Json| crd.pointer("/spec/versions").and_then(Json::as_array).cloned().unwrap_or_default();
    let (before, after) = (versions(old), versions(new));
    for version in &before {
        let name = version.get("name").and_then(Json::as_str).unwrap_or_default();
        let Some(same) = after.iter().find(|other| other.get("name") == version.get("name")) else {
            push(&mut changes, "", "VERSION_REMOVED", format!("Version {name} was removed"));
            continue;
        };
        let flag = |version: &Json, field: &str| version.get(field).and_then(Json::as_bool).unwrap_or(false);
        if flag(version, "served") && !flag(same, "served") {
            push(&mut changes, "", "VERSION_NOT_SERVED", format!("Version {name} is no longer served"));
        }
        if version.pointer("/subresources/status").is_some() && same.pointer("/subresources/status").is_none()
        {
            push(&mut changes, "", "STATUS_REMOVED", "Status subresource was removed".to_owned());
        }
        let schema = |version: &Json| version.pointer("/schema/openAPIV3Schema").cloned().unwrap_or_default();
        compare(&schema(version), &schema(same), "", &mut changes);
    }
    changes
}

fn push(changes: &mut Vec<Change>, path: &str, code: &'static str, message: String) {
    changes.push(Change { path: path.to_owned(), code, message });
}

fn compare(old: &Json, new: &Json, path: &str, changes: &mut Vec<Change>) {
    let text =
        |schema: &Json, key: &str| schema.get(key).and_then(Json::as_str).unwrap_or_default().to_owned();
    let (old_type, new_type) = (text(old, "type"), text(new, "type"));
    if old_type != new_type {
        push(changes, path, "TYPE_CHANGED", format!("Type changed from {old_type} to {new_type}"));
        return;
    }
    constraints(old, new, path, changes);
    properties(old, new, path, changes);
    for (field, suffix) in [("items", "[]"), ("additionalProperties", "[*]")] {
        if let (Some(old), Some(new)) = (old.get(field), new.get(field)) {
            compare(old, new, &format!("{path}{suffix}"), changes);
        }
    }
}

fn properties(old: &Json, new: &Json, path: &str, changes: &mut Vec<Change>) {
    let fields =
        |schema: &'_ Json| schema.get("properties").and_then(Json::as_object).cloned().unwrap_or_default();
    let (before, after) = (fields(old), fields(new));
    let required = |schema: &Json| -> BTreeSet<String> {
        let list = schema.get("required").and_then(Json::as_array).into_iter().flatten();
        list.filter_map(Json::as_str).map(str::to_owned).collect()
    };
    let (old_required, new_required) = (required(old), required(new));
    let has_default = |fields: &serde_json::Map<String, Json>, name: &str| {
        fields.get(name).is_some_and(|field| field.get("default").is_some())
    };
    for (name, field) in &before {
        let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match after.get(name) {
            None => push(changes, &below, "PROPERTY_REMOVED", format!("Property {name} was removed")),
            Some(other) => compare(field, other, &below, changes),
        }
    }
    for name in after.keys().filter(|name| !before.contains_key(*name)) {
        if new_required.contains(name) && !has_default(&after, name) {
            let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            push(
                changes,
                &below,
                "PROPERTY_ADDED",
                format!("Required property {name} was added without default"),
            );
        }
    }
    for name in new_required.difference(&old_required).filter(|name| before.contains_key(*name)) {
        if !has_default(&after, name) {
            push(changes, path, "REQUIRED_ADDED", format!("Field {name} is newly required"));
        }
    }
    for name in new_required.intersection(&old_required) {
        if has_default(&before, name) && !has_default(&after, name) {
            push(
                changes,
                path,
                "REQUIRED_DEFAULT_REMOVED",
                format!("Default value removed from required field {name}"),
            );
        }
    }
}

/// Keyword, its name in messages, codes, and whether growing restricts.
const BOUNDS: &[(&str, &str, &str, &str, bool)] = &[
    ("minimum", "Minimum", "MINIMUM_ADDED", "MINIMUM_INCREASED", true),
    ("maximum", "Maximum", "MAXIMUM_ADDED", "MAXIMUM_DECREASED", false),
    ("minLength", "MinLength", "MIN_LENGTH_ADDED", "MIN_LENGTH_INCREASED", true),
    ("maxLength", "MaxLength", "MAX_LENGTH_ADDED", "MAX_LENGTH_DECREASED", false),
    ("minItems", "MinItems", "MIN_ITEMS_ADDED", "MIN_ITEMS_INCREASED", true),
    ("maxItems", "MaxItems", "MAX_ITEMS_ADDED", "MAX_ITEMS_DECREASED", false),
];

fn constraints(old: &Json, new: &Json, path: &str, changes: &mut Vec<Change>) {
    let (before, after) =
        (old.get("enum").and_then(Json::as_array), new.get("enum").and_then(Json::as_array));
    if let Some(after) = after {
        match before {
            Some(before) => {
                for value in before.iter().filter(|value| !after.contains(value)) {
                    push(changes, path, "ENUM_RESTRICTED", format!("Enum value {value} was removed"));
                }
            }
            None => push(changes, path, "ENUM_RESTRICTED", "Enum was added".to_owned()),
        }
    }
    match (old.get("pattern").and_then(Json::as_str), new.get("pattern").and_then(Json::as_str)) {
        (None, Some(pattern)) => push(changes, path, "PATTERN_ADDED", format!("Pattern {pattern} was added")),
        (Some(before), Some(after)) if before != after => {
            push(changes, path, "PATTERN_CHANGED", format!("Pattern changed from {before} to {after}"));
        }
        _ => {}
    }
    for (keyword, name, added, changed, growing) in BOUNDS {
        let bound = |schema: &Json| schema.get(*keyword).and_then(Json::as_f64);
        match (bound(old), bound(new)) {
            (None, Some(after)) => push(changes, path, added, format!("{name} constraint {after} was added")),
            (Some(before), Some(after)) if (*growing && after > before) || (!*growing && after < before) => {
                let verb = if *growing { "increased" } else { "decreased" };
                push(changes, path, changed, format!("{name} was {verb} from {before} to {after}"));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn codes(old: &Json, new: &Json) -> Vec<&'static str> {
        let crd = |spec: &Json| {
            json!({"spec": {"versions": [{"name": "v1", "served": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]}})
        };
        breaking_changes(&crd(old), &crd(new)).into_iter().map(|change| change.code).collect()
    }

    #[test]
    fn breaking_changes_are_told_from_harmless_ones() {
        let field = |field: Json| json!({"type": "object", "properties": {"f": field}});
        let text = || json!({"type": "string"});
        assert_eq!(codes(&field(text()), &json!({"type": "object"})), ["PROPERTY_REMOVED"]);
        assert_eq!(codes(&field(text()), &field(json!({"type": "integer"}))), ["TYPE_CHANGED"]);
        assert_eq!(
            codes(&field(text()), &field(json!({"type": "string", "pattern": "a"}))),
            ["PATTERN_ADDED"]
        );
        assert_eq!(
            codes(&field(text()), &field(json!({"type": "string", "maxLength": 3}))),
            ["MAX_LENGTH_ADDED"]
        );
        let number = |bounds: Json| {
            let mut schema = json!({"type": "integer"});
            schema.as_object_mut().unwrap().extend(bounds.as_object().unwrap().clone());
            field(schema)
        };
        assert_eq!(
            codes(&number(json!({"minimum": 1})), &number(json!({"minimum": 2}))),
            ["MINIMUM_INCREASED"]
        );
        assert_eq!(codes(&number(json!({"minimum": 2})), &number(json!({"minimum": 1}))), Vec::<&str>::new());
        assert_eq!(codes(&number(json!({"maximum": 2})), &number(json!({}))), Vec::<&str>::new());
        let required =
            |default: Json| json!({"type": "object", "required": ["f"], "properties": {"f": default}});
        assert_eq!(codes(&field(text()), &required(text())), ["REQUIRED_ADDED"]);
        assert_eq!(
            codes(&field(text()), &required(json!({"type": "string", "default": "x"}))),
            Vec::<&str>::new()
        );
        assert_eq!(codes(&json!({"type": "object"}), &required(text())), ["PROPERTY_ADDED"]);
        assert_eq!(codes(&json!({"type": "object"}), &field(text())), Vec::<&str>::new());
        let choice = |values: Json| field(json!({"type": "string", "enum": values}));
        assert_eq!(codes(&choice(json!(["a", "b"])), &choice(json!(["a"]))), ["ENUM_RESTRICTED"]);
        assert_eq!(codes(&choice(json!(["a"])), &choice(json!(["a", "b"]))), Vec::<&str>::new());
    }
}
