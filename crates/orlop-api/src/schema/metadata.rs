//! Metadata of custom resources and embedded resources, which schemas do not declare.

use super::typed_decode::check_types;
use super::{AdditionalProperties, Root, Schema, builtin, prune};
use crate::field_error::{FieldError, FieldPath};
use crate::group_version::GroupVersion;
use crate::names::{self, NameRule};
use crate::object_meta::{self, MetaRules};
use serde_json::Value;

/// Handling of malformed metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Refuse it: requests.
    Refuse,
    /// Drop it: objects read back from storage.
    Drop,
}

/// Coerces apiVersion, kind and metadata: removes and returns unknown metadata fields;
/// refuses or drops values of wrong types.
pub fn coerce_metadata(
    object: &mut Value,
    schema: &Schema,
    malformed: Malformed,
) -> Result<Vec<String>, FieldError> {
    let mut unknown = Vec::new();
    coerce(object, schema, true, &FieldPath::nil(), malformed, &mut unknown)?;
    unknown.sort();
    Ok(unknown)
}

/// Validates the metadata of a default value and of resources embedded in it.
pub(super) fn validate_default(value: &Value, schema: &Schema, embedded: bool) -> Vec<FieldError> {
    let mut coerced = value.clone();
    if let Err(error) =
        coerce(&mut coerced, schema, embedded, &FieldPath::nil(), Malformed::Refuse, &mut Vec::new())
    {
        return vec![error];
    }
    let mut errors = Vec::new();
    walk(&coerced, schema, embedded, &FieldPath::nil(), &mut errors);
    errors
}

fn coerce(
    value: &mut Value,
    schema: &Schema,
    embedded: bool,
    path: &FieldPath,
    malformed: Malformed,
    unknown: &mut Vec<String>,
) -> Result<(), FieldError> {
    match value {
        Value::Object(map) => {
            if embedded {
                for key in ["apiVersion", "kind"] {
                    if map.get(key).is_some_and(|value| !value.is_string()) {
                        match malformed {
                            Malformed::Drop => drop(map.remove(key)),
                            Malformed::Refuse => {
                                let value = map.get(key).cloned().unwrap_or_default();
                                return Err(FieldError::invalid(&path.child(key), value, "must be a string"));
                            }
                        }
                    }
                }
                if let Some(metadata) = map.get_mut("metadata") {
                    coerce_object_meta(metadata, &path.child("metadata"), malformed, unknown)?;
                }
            }
            for (key, item) in map.iter_mut() {
                if let Some(field) = schema.field(key) {
                    coerce(
                        item,
                        field.schema(),
                        field.schema().embedded_resource,
                        &path.child(key),
                        malformed,
                        unknown,
                    )?;
                } else if let AdditionalProperties::Of(inner) = &schema.additional_properties {
                    coerce(
                        item,
                        inner.get(),
                        inner.get().embedded_resource,
                        &path.key(key),
                        malformed,
                        unknown,
                    )?;
                }
            }
        }
        Value::Array(items) => {
            let Some(inner) = schema.items() else { return Ok(()) };
            for (index, item) in items.iter_mut().enumerate() {
                coerce(item, inner, inner.embedded_resource, &path.index(index), malformed, unknown)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn coerce_object_meta(
    metadata: &mut Value,
    path: &FieldPath,
    malformed: Malformed,
    unknown: &mut Vec<String>,
) -> Result<(), FieldError> {
    let schema = builtin::object_meta();
    if let Err(mismatch) = check_types(metadata, schema) {
        if malformed == Malformed::Refuse {
            return Err(FieldError::invalid(path, metadata.clone(), mismatch.to_string()));
        }
        let Some(map) = metadata.as_object_mut() else { return Ok(()) };
        map.retain(|key, value| {
            schema.field(key).is_none_or(|field| check_types(value, field.schema()).is_ok())
        });
    }
    let gone = prune(metadata, schema, Root::Plain);
    unknown.extend(gone.into_iter().map(|field| format!("{path}.{field}")));
    if let Some(map) = metadata.as_object_mut() {
        // Go omits empty values; null is one.
        map.retain(|_, value| !value.is_null());
    }
    Ok(())
}

/// Validates apiVersion, kind and metadata of embedded resources. The root is validated elsewhere.
pub fn validate_embedded_resources(object: &Value, schema: &Schema) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(object, schema, false, &FieldPath::nil(), &mut errors);
    errors
}

fn walk(value: &Value, schema: &Schema, embedded: bool, path: &FieldPath, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            if embedded {
                validate_embedded(value, path, errors);
            }
            for (key, item) in map {
                if let Some(field) = schema.field(key) {
                    walk(item, field.schema(), field.schema().embedded_resource, &path.child(key), errors);
                } else if let AdditionalProperties::Of(inner) = &schema.additional_properties {
                    walk(item, inner.get(), inner.get().embedded_resource, &path.key(key), errors);
                }
            }
        }
        Value::Array(items) => {
            let Some(inner) = schema.items() else { return };
            for (index, item) in items.iter().enumerate() {
                walk(item, inner, inner.embedded_resource, &path.index(index), errors);
            }
        }
        _ => {}
    }
}

fn validate_embedded(value: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let api_version_path = path.child("apiVersion");
    match value.get("apiVersion") {
        None => errors.push(FieldError::required(&api_version_path, "")),
        Some(Value::String(text)) if text.is_empty() => {
            errors.push(FieldError::invalid(&api_version_path, "", "must not be empty"));
        }
        Some(Value::String(text)) => {
            if let Err(error) = GroupVersion::parse(text) {
                errors.push(FieldError::invalid(&api_version_path, text.as_str(), error.to_string()));
            }
        }
        Some(other) => errors.push(FieldError::invalid(&api_version_path, other.clone(), "must be a string")),
    }
    let kind_path = path.child("kind");
    match value.get("kind") {
        None => errors.push(FieldError::required(&kind_path, "")),
        Some(Value::String(text)) if text.is_empty() => {
            errors.push(FieldError::invalid(&kind_path, "", "must not be empty"));
        }
        Some(Value::String(text)) => {
            let problems = names::dns1035_label(&text.to_lowercase());
            if !problems.is_empty() {
                let detail =
                    format!("may have mixed case, but should otherwise match: {}", problems.join(","));
                errors.push(FieldError::invalid(&kind_path, text.as_str(), detail));
            }
        }
        Some(other) => errors.push(FieldError::invalid(&kind_path, other.clone(), "must be a string")),
    }
    if value.get("metadata").is_some() {
        let mut meta = object_meta::of(value).clone();
        if object_meta::text(&meta, "name").is_empty() {
            meta.insert("name".to_owned(), "fakename".into());
        }
        let namespaced = !object_meta::text(&meta, "namespace").is_empty();
        let rules = MetaRules { namespaced, name: NameRule::PathSegment };
        errors.extend(object_meta::validate(&meta, rules, &path.child("metadata")));
    }
}

#[cfg(test)]
mod tests {
    use super::super::from_openapi;
    use super::*;
    use serde_json::json;

    fn schema() -> Schema {
        from_openapi(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "template": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}}}}))
    }

    #[test]
    fn unknown_metadata_is_pruned_and_reported() {
        let mut object = json!({"apiVersion": "v1", "kind": "K", "metadata": {"name": "a", "nope": 1, "labels": {"x": "y"}},
            "spec": {"template": {"metadata": {"name": "b", "neither": {}, "creationTimestamp": null}}}});
        let unknown = coerce_metadata(&mut object, &schema(), Malformed::Refuse).unwrap();
        assert_eq!(unknown, ["metadata.nope", "spec.template.metadata.neither"]);
        assert_eq!(object["spec"]["template"]["metadata"], json!({"name": "b"}));
    }

    #[test]
    fn wrong_types_are_refused_in_requests_and_dropped_from_storage() {
        let object = json!({"metadata": {"name": "a", "labels": {"x": 5}, "annotations": {"y": "z"}}, "spec": {"template": {"kind": 5}}});
        let error = coerce_metadata(&mut object.clone(), &schema(), Malformed::Refuse).unwrap_err();
        assert_eq!(error.field.to_string(), "metadata");
        assert!(
            error.detail.starts_with(
                "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string"
            ),
            "{}",
            error.detail
        );
        let mut stored = object.clone();
        coerce_metadata(&mut stored, &schema(), Malformed::Drop).unwrap();
        assert_eq!(
            stored,
            json!({"metadata": {"name": "a", "annotations": {"y": "z"}}, "spec": {"template": {}}})
        );
        let mut object = object;
        object["metadata"]["labels"] = json!({});
        let error = coerce_metadata(&mut object, &schema(), Malformed::Refuse).unwrap_err();
        assert_eq!(error.to_string(), "spec.template.kind: Invalid value: 5: must be a string");
    }

    #[test]
    fn embedded_resources_are_validated() {
        let object = json!({"spec": {"template": {"apiVersion": "a/b/c", "kind": "b_d", "metadata": {"labels": {"a b": "x"}}}}});
        let errors: Vec<_> =
            validate_embedded_resources(&object, &schema()).iter().map(ToString::to_string).collect();
        assert_eq!(
            errors[0],
            "spec.template.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c"
        );
        assert!(errors[1].starts_with("spec.template.kind: Invalid value: \"b_d\": may have mixed case, but should otherwise match: a DNS-1035 label"));
        assert!(errors[2].starts_with("spec.template.metadata.labels: Invalid value: \"a b\""));
        let errors = validate_embedded_resources(&json!({"spec": {"template": {}}}), &schema());
        assert_eq!(errors.len(), 2);
    }
}
