//! Validation of ObjectMeta on create and update.

mod system_fields;

pub use system_fields::{
    Propagation, bump_generation, carry_over, clear_for_create, deletion_finalizers, desired_state_changed,
    is_no_op,
};

use crate::field_error::{FieldError, FieldPath};
use crate::group_version::GroupVersion;
use crate::labels;
use crate::names::{self, NameRule};
use serde_json::{Map, Value};
use std::collections::HashSet;

/// Limit on the total size of annotation keys and values.
pub const ANNOTATIONS_BYTES_MAX: usize = 256 << 10;
pub const FIELD_MANAGER_LENGTH_MAX: usize = 128;
const SUBRESOURCE_LENGTH_MAX: usize = 256;
pub const IMMUTABLE: &str = "field is immutable";
pub const FINALIZER_ORPHAN: &str = "orphan";
pub const FINALIZER_FOREGROUND: &str = "foregroundDeletion";
pub const FINALIZER_NAMESPACE: &str = "kubernetes";

/// Per-kind rules of ObjectMeta validation.
#[derive(Clone, Copy, Debug)]
pub struct MetaRules {
    pub namespaced: bool,
    pub name: NameRule,
}

static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);

/// Returns an object's metadata; empty if absent.
pub fn of(object: &Value) -> &Map<String, Value> {
    object.get("metadata").and_then(Value::as_object).unwrap_or(&EMPTY)
}

/// Returns true if a resourceVersion is given. `0` stands for none, as in Kubernetes.
pub fn has_resource_version(meta: &Map<String, Value>) -> bool {
    let version = text(meta, "resourceVersion");
    !version.is_empty() && version.parse::<u64>() != Ok(0)
}

/// Returns a string field of metadata; empty if absent.
pub fn text<'a>(meta: &'a Map<String, Value>, key: &str) -> &'a str {
    meta.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn strings<'a>(meta: &'a Map<String, Value>, key: &str) -> Vec<&'a str> {
    meta.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

fn integer(meta: &Map<String, Value>, key: &str) -> i64 {
    meta.get(key).and_then(Value::as_i64).unwrap_or_default()
}

/// Validates the metadata of an object about to be created (its name already generated).
pub fn validate(meta: &Map<String, Value>, rules: MetaRules, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let generate_name = text(meta, "generateName");
    if !generate_name.is_empty() {
        let path = path.child("generateName");
        errors.extend(
            rules
                .name
                .check_prefix(generate_name)
                .into_iter()
                .map(|why| FieldError::invalid(&path, generate_name, why)),
        );
    }
    let name = text(meta, "name");
    let name_path = path.child("name");
    if name.is_empty() {
        errors.push(FieldError::required(&name_path, "name or generateName is required"));
    } else {
        errors
            .extend(rules.name.check(name).into_iter().map(|why| FieldError::invalid(&name_path, name, why)));
    }
    let namespace = text(meta, "namespace");
    let namespace_path = path.child("namespace");
    if !rules.namespaced {
        if !namespace.is_empty() {
            errors.push(FieldError::forbidden(&namespace_path, "not allowed on this type"));
        }
    } else if namespace.is_empty() {
        errors.push(FieldError::required(&namespace_path, ""));
    } else {
        let problems = names::dns1123_label(namespace);
        errors.extend(problems.into_iter().map(|why| FieldError::invalid(&namespace_path, namespace, why)));
    }
    errors.extend(validate_generation(meta, path));
    errors.extend(validate_labels_and_annotations(meta, path));
    errors.extend(validate_owner_references(meta, &path.child("ownerReferences")));
    errors.extend(validate_finalizers(&strings(meta, "finalizers"), &path.child("finalizers")));
    errors.extend(validate_managed_fields(meta, &path.child("managedFields")));
    errors
}

/// Validates the metadata of an update against what is stored.
pub fn validate_update(
    new: &Map<String, Value>,
    old: &Map<String, Value>,
    path: &FieldPath,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if old.get("deletionTimestamp").is_some_and(|time| !time.is_null()) {
        let (new, old) = (strings(new, "finalizers"), strings(old, "finalizers"));
        errors.extend(validate_no_new_finalizers(&new, &old, &path.child("finalizers")));
    }
    if text(new, "resourceVersion").is_empty() {
        errors.push(FieldError::invalid(
            &path.child("resourceVersion"),
            "",
            "must be specified for an update",
        ));
    }
    errors.extend(validate_generation(new, path));
    if integer(new, "generation") < integer(old, "generation") {
        let path = path.child("generation");
        errors.push(FieldError::invalid(&path, integer(new, "generation"), "must not be decremented"));
    }
    for key in ["name", "namespace", "uid"] {
        if text(new, key) != text(old, key) {
            errors.push(FieldError::invalid(&path.child(key), text(new, key), IMMUTABLE));
        }
    }
    for key in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let value = |meta: &Map<String, Value>| meta.get(key).cloned().unwrap_or(Value::Null);
        if value(new) != value(old) {
            errors.push(FieldError::invalid(&path.child(key), value(new), IMMUTABLE));
        }
    }
    errors.extend(validate_labels_and_annotations(new, path));
    errors.extend(validate_owner_references(new, &path.child("ownerReferences")));
    errors.extend(validate_managed_fields(new, &path.child("managedFields")));
    errors
}

fn validate_generation(meta: &Map<String, Value>, path: &FieldPath) -> Vec<FieldError> {
    let generation = integer(meta, "generation");
    if generation >= 0 {
        return Vec::new();
    }
    vec![FieldError::invalid(&path.child("generation"), generation, "must be greater than or equal to 0")]
}

fn validate_labels_and_annotations(meta: &Map<String, Value>, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(map) = meta.get("labels").and_then(Value::as_object) {
        errors.extend(labels::validate(map, &path.child("labels")));
    }
    if let Some(map) = meta.get("annotations").and_then(Value::as_object) {
        errors.extend(validate_annotations(map, &path.child("annotations")));
    }
    errors
}

pub fn validate_annotations(annotations: &Map<String, Value>, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for key in annotations.keys() {
        let problems = names::qualified_name(&key.to_lowercase());
        errors.extend(problems.into_iter().map(|why| FieldError::invalid(path, key.as_str(), why)));
    }
    if annotations_bytes(annotations) > ANNOTATIONS_BYTES_MAX {
        errors.push(FieldError::too_long(path, ANNOTATIONS_BYTES_MAX));
    }
    errors
}

pub fn annotations_bytes(annotations: &Map<String, Value>) -> usize {
    annotations.iter().map(|(key, value)| key.len() + value.as_str().unwrap_or_default().len()).sum()
}

pub fn validate_owner_references(meta: &Map<String, Value>, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut first_controller: Option<String> = None;
    let references = meta.get("ownerReferences").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    for (index, reference) in references.iter().enumerate() {
        let field = |key: &str| reference.get(key).and_then(Value::as_str).unwrap_or_default();
        let at = path.index(index);
        let api_version = field("apiVersion");
        let parsed = GroupVersion::parse(api_version);
        if api_version.is_empty() {
            errors.push(FieldError::required(&at.child("apiVersion"), "must not be empty"));
        } else if !parsed.as_ref().is_ok_and(|parsed| !parsed.version.is_empty()) {
            let detail = "must be <group>/<version> or <version>";
            errors.push(FieldError::invalid(&at.child("apiVersion"), api_version, detail));
        }
        for key in ["kind", "name", "uid"] {
            if field(key).is_empty() {
                errors.push(FieldError::required(&at.child(key), "must not be empty"));
            }
        }
        // Kubernetes forbids Events as owners.
        let kind = parsed.unwrap_or_default().with_kind(field("kind"));
        if kind.group.is_empty() && kind.version == "v1" && kind.kind == "Event" {
            errors.push(FieldError::invalid(
                &at,
                reference.clone(),
                format!("{kind} is disallowed from being an owner"),
            ));
        }
        if reference.get("controller") == Some(&Value::Bool(true)) {
            let name = format!("{}/{}", field("kind"), field("name"));
            match &first_controller {
                None => first_controller = Some(name),
                Some(first) => {
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
                    );
                    errors.push(FieldError::invalid(path, references.to_vec(), detail));
                }
            }
        }
    }
    errors
}

pub fn validate_finalizers(finalizers: &[&str], path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for finalizer in finalizers {
        let problems = names::qualified_name(finalizer);
        errors.extend(problems.into_iter().map(|why| FieldError::invalid(path, *finalizer, why)));
    }
    if finalizers.contains(&FINALIZER_ORPHAN) && finalizers.contains(&FINALIZER_FOREGROUND) {
        let detail = format!("finalizer {FINALIZER_ORPHAN} and {FINALIZER_FOREGROUND} cannot be both set");
        errors.push(FieldError::invalid(path, finalizers.to_vec(), detail));
    }
    errors
}

/// Returns errors for finalizers that are neither qualified nor Kubernetes' own.
pub fn unqualified_finalizers(meta: &Map<String, Value>, path: &FieldPath) -> Vec<FieldError> {
    let (finalizers, path) = (strings(meta, "finalizers"), path.child("finalizers"));
    let own = [FINALIZER_ORPHAN, FINALIZER_FOREGROUND, FINALIZER_NAMESPACE];
    let is_known = |name: &str| name.contains('/') || own.contains(&name);
    let unknown = finalizers.iter().enumerate().filter(|(_, name)| !is_known(name));
    let refused = unknown.map(|(index, name)| {
        let detail = "name is neither a standard finalizer name nor is it fully qualified";
        FieldError::invalid(&path.index(index), *name, detail)
    });
    refused.collect()
}

/// Validates that no finalizers are added to a terminating object.
pub fn validate_no_new_finalizers(new: &[&str], old: &[&str], path: &FieldPath) -> Vec<FieldError> {
    let mut extra: Vec<_> = new.iter().filter(|finalizer| !old.contains(finalizer)).collect();
    if extra.is_empty() {
        return Vec::new();
    }
    extra.sort_unstable();
    extra.dedup();
    let quoted: Vec<_> = extra.into_iter().map(|finalizer| crate::go_text::quote(finalizer)).collect();
    let list = quoted.join(", ");
    let detail = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{list}}}"
    );
    vec![FieldError::forbidden(path, detail)]
}

fn validate_managed_fields(meta: &Map<String, Value>, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, entry) in
        meta.get("managedFields").and_then(Value::as_array).into_iter().flatten().enumerate()
    {
        let field = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
        let path = path.index(index);
        match field("operation") {
            "Apply" | "Update" => {}
            "" => errors.push(FieldError::required(&path.child("operation"), "must not be empty")),
            other => {
                errors.push(FieldError::not_supported(&path.child("operation"), other, &["Apply", "Update"]));
            }
        }
        if !matches!(field("fieldsType"), "" | "FieldsV1") {
            errors.push(FieldError::invalid(
                &path.child("fieldsType"),
                field("fieldsType"),
                "must be `FieldsV1`",
            ));
        }
        errors.extend(validate_field_manager(field("manager"), &path.child("manager")));
        if field("subresource").len() > SUBRESOURCE_LENGTH_MAX {
            errors.push(FieldError::too_long(&path.child("subresource"), SUBRESOURCE_LENGTH_MAX));
        }
    }
    errors
}

/// Validates a field manager's name: at most 128 bytes, all printable.
pub fn validate_field_manager(manager: &str, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if manager.len() > FIELD_MANAGER_LENGTH_MAX {
        errors.push(FieldError::too_long(path, FIELD_MANAGER_LENGTH_MAX));
    }
    for (position, character) in manager.char_indices().filter(|(_, c)| !crate::go_text::is_printable(*c)) {
        let detail = format!("invalid character U+{:04X} (at position {position})", character as u32);
        errors.push(FieldError::invalid(path, manager, detail));
    }
    errors
}

/// Removes duplicate owner references and returns their uids, for a warning.
pub fn deduplicate_owner_references(meta: &mut Map<String, Value>) -> Vec<String> {
    let Some(Value::Array(references)) = meta.get_mut("ownerReferences") else { return Vec::new() };
    let (mut seen, mut repeated) = (HashSet::new(), Vec::new());
    references.retain(|reference| {
        let first = seen.insert(reference.to_string());
        if !first {
            repeated.push(reference["uid"].as_str().unwrap_or_default().to_owned());
        }
        first
    });
    repeated
}

/// Returns random bytes as a UUID, version 4.
pub fn uuid(mut random: [u8; 16]) -> String {
    random[6] = (random[6] & 0x0f) | 0x40;
    random[8] = (random[8] & 0x3f) | 0x80;
    let mut text = String::with_capacity(36);
    for (index, byte) in random.into_iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        for digit in [byte >> 4, byte & 0x0f] {
            text.extend(char::from_digit(digit.into(), 16));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const RULES: MetaRules = MetaRules { namespaced: true, name: NameRule::Subdomain };

    fn create(meta: Value, rules: MetaRules) -> Vec<String> {
        let path = FieldPath::root("metadata");
        validate(meta.as_object().unwrap(), rules, &path).iter().map(ToString::to_string).collect()
    }

    fn update(new: Value, old: Value) -> Vec<String> {
        let path = FieldPath::root("metadata");
        validate_update(new.as_object().unwrap(), old.as_object().unwrap(), &path)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn valid_metadata_passes() {
        let meta = json!({"name": "a", "namespace": "b", "labels": {"k": "v"}, "annotations": {"K/x": "v"}, "finalizers": ["a.b/c", "orphan"],
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "X", "name": "n", "uid": "u", "controller": true}]});
        assert_eq!(create(meta.clone(), RULES), Vec::<String>::new()[..]);
        let mut new = meta.clone();
        new["resourceVersion"] = "5".into();
        assert_eq!(update(new, meta), Vec::<String>::new()[..]);
    }

    #[test]
    fn create_validation_has_kubernetes_messages() {
        assert_eq!(
            create(json!({}), RULES),
            [
                "metadata.name: Required value: name or generateName is required",
                "metadata.namespace: Required value"
            ]
        );
        let cluster = MetaRules { namespaced: false, name: NameRule::PathSegment };
        assert_eq!(
            create(json!({"name": "a/b", "namespace": "x"}), cluster),
            [
                "metadata.name: Invalid value: \"a/b\": may not contain '/'",
                "metadata.namespace: Forbidden: not allowed on this type"
            ]
        );
        let meta = |key: &str, value: Value| json!({"name": "a", "namespace": "b", key: value});
        let owner = json!({"apiVersion": "v1", "kind": "Event", "name": "n", "uid": "u"});
        assert_eq!(
            create(meta("ownerReferences", json!([owner])), RULES),
            [
                r#"metadata.ownerReferences[0]: Invalid value: {"apiVersion":"v1","kind":"Event","name":"n","uid":"u"}: /v1, Kind=Event is disallowed from being an owner"#
            ]
        );
        assert_eq!(create(meta("ownerReferences", json!([{}])), RULES).len(), 4);
        assert_eq!(
            create(
                meta(
                    "ownerReferences",
                    json!([{"apiVersion": "a/b/c", "kind": "k", "name": "n", "uid": "u"}])
                ),
                RULES
            ),
            [
                r#"metadata.ownerReferences[0].apiVersion: Invalid value: "a/b/c": must be <group>/<version> or <version>"#
            ]
        );
        let controller = |name: &str| json!({"apiVersion": "v1", "kind": "K", "name": name, "uid": "u", "controller": true});
        assert!(create(meta("ownerReferences", json!([controller("a"), controller("b")])), RULES)[0].ends_with(r#"Only one reference can have Controller set to true. Found "true" in references for K/a and K/b"#));
        assert_eq!(
            create(meta("finalizers", json!(["orphan", "foregroundDeletion"])), RULES),
            [
                r#"metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: finalizer orphan and foregroundDeletion cannot be both set"#
            ]
        );
        assert_eq!(
            create(meta("annotations", json!({"a": "x".repeat(ANNOTATIONS_BYTES_MAX)})), RULES),
            ["metadata.annotations: Too long: may not be more than 262144 bytes"]
        );
        assert_eq!(
            create(meta("generation", json!(-1)), RULES),
            ["metadata.generation: Invalid value: -1: must be greater than or equal to 0"]
        );
        assert_eq!(
            create(meta("managedFields", json!([{"manager": "a\n", "fieldsType": "X"}])), RULES),
            [
                "metadata.managedFields[0].operation: Required value: must not be empty",
                "metadata.managedFields[0].fieldsType: Invalid value: \"X\": must be `FieldsV1`",
                "metadata.managedFields[0].manager: Invalid value: \"a\\n\": invalid character U+000A (at position 1)"
            ]
        );
    }

    #[test]
    fn update_validation_has_kubernetes_messages() {
        let old = json!({"name": "a", "uid": "u", "creationTimestamp": "t", "generation": 3, "deletionTimestamp": "t", "finalizers": ["x"]});
        assert_eq!(
            update(json!({"name": "b", "generation": 2, "finalizers": ["x", "y"]}), old),
            [
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"y\"}",
                "metadata.resourceVersion: Invalid value: \"\": must be specified for an update",
                "metadata.generation: Invalid value: 2: must not be decremented",
                "metadata.name: Invalid value: \"b\": field is immutable",
                "metadata.uid: Invalid value: \"\": field is immutable",
                "metadata.creationTimestamp: Invalid value: null: field is immutable",
                "metadata.deletionTimestamp: Invalid value: null: field is immutable",
            ]
        );
    }

    #[test]
    fn duplicate_owner_references_are_removed() {
        let mut meta = json!({"ownerReferences": [{"uid": "a"}, {"uid": "b"}, {"uid": "a"}]});
        assert_eq!(deduplicate_owner_references(meta.as_object_mut().unwrap()), ["a"]);
        assert_eq!(meta["ownerReferences"], json!([{"uid": "a"}, {"uid": "b"}]));
        assert!(deduplicate_owner_references(meta.as_object_mut().unwrap()).is_empty());
    }
}
