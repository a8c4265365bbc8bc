//! Validation of environment variables and their sources.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names,
};
use serde_json::Value;

use crate::{
    accessors::{list, present, text},
    quantities, validation,
};

const FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const VOLUME_FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const SOURCES: &[&str] = &["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];

/// Validates `env` and `envFrom`.
pub(crate) fn validate_environment(container: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = validation::validate_items(container, "env", path, validate_env_var);
    let from_path = path.child("envFrom");
    for (index, from) in list(container, "/envFrom").iter().enumerate() {
        let path = from_path.index(index);
        let prefix = text(from, "/prefix");
        if !prefix.is_empty() {
            errors.extend(validation::invalid_for_each(
                &path.child("prefix"),
                prefix,
                env_var_name_problems(prefix),
            ));
        }
        let sources = ["configMapRef", "secretRef"].map(|field| (field, present(from, &format!("/{field}"))));
        for (field, source) in sources.iter().filter_map(|(field, source)| Some((field, (*source)?))) {
            errors.extend(match text(source, "/name") {
                "" => vec![FieldError::required(&path.child(field).child("name"), "")],
                name => validation::validate_dns_subdomain(name, &path.child(field).child("name")),
            });
        }
        match sources.iter().filter(|(_, source)| source.is_some()).count() {
            0 => errors.push(FieldError::invalid(
                &from_path,
                "",
                "must specify one of: `configMapRef` or `secretRef`",
            )),
            1 => {}
            _ => errors.push(FieldError::invalid(
                &from_path,
                "",
                "may not have more than one field specified at a time",
            )),
        }
    }
    errors
}

/// Returns the problems of a variable name: printable ASCII without `=`.
fn env_var_name_problems(name: &str) -> Vec<String> {
    let allowed = |byte: u8| (0x20..=0x7e).contains(&byte) && byte != b'=';
    if name.bytes().all(allowed) {
        return Vec::new();
    }
    vec![
        "a valid environment variable name must consist only of printable ASCII characters other than '='"
            .to_owned(),
    ]
}

fn validate_env_var(variable: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = match text(variable, "/name") {
        "" => vec![FieldError::required(&path.child("name"), "")],
        name => validation::invalid_for_each(&path.child("name"), name, env_var_name_problems(name)),
    };
    let Some(from) = present(variable, "/valueFrom") else { return errors };
    let path = path.child("valueFrom");
    let given: Vec<(&str, &Value)> =
        SOURCES.iter().filter_map(|source| Some((*source, present(from, &format!("/{source}"))?))).collect();
    for (source, reference) in &given {
        let path = path.child(source);
        errors.extend(match *source {
            "fieldRef" => validate_field_reference(reference, FIELDS, &path),
            "resourceFieldRef" => validate_resource_reference(reference, false, &path),
            "configMapKeyRef" | "secretKeyRef" => validate_key_reference(reference, &path),
            _ => Vec::new(),
        });
    }
    let problem = match given.len() {
        0 => {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        }
        _ if !text(variable, "/value").is_empty() => "may not be specified when `value` is not empty",
        1 => return errors,
        _ => "may not have more than one field specified at a time",
    };
    errors.push(FieldError::invalid(&path, "", problem));
    errors
}

fn validate_key_reference(reference: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = validation::validate_dns_subdomain(text(reference, "/name"), &path.child("name"));
    match text(reference, "/key") {
        "" => errors.push(FieldError::required(&path.child("key"), "")),
        key => {
            errors.extend(validation::invalid_for_each(&path.child("key"), key, names::config_map_key(key)));
        }
    }
    errors
}

/// Validates a pod field or resource in a downward API file.
pub(crate) fn validate_volume_field(item: &Value, path: &FieldPath) -> Vec<FieldError> {
    match (present(item, "/fieldRef"), present(item, "/resourceFieldRef")) {
        (Some(reference), None) => {
            validate_field_reference(reference, VOLUME_FIELDS, &path.child("fieldRef"))
        }
        (None, Some(reference)) => {
            validate_resource_reference(reference, true, &path.child("resourceFieldRef"))
        }
        (None, None) => vec![FieldError::required(path, "one of fieldRef and resourceFieldRef is required")],
        (Some(_), Some(_)) => {
            vec![FieldError::invalid(
                path,
                "resource",
                "fieldRef and resourceFieldRef can not be specified simultaneously",
            )]
        }
    }
}

fn validate_field_reference(reference: &Value, fields: &[&str], path: &FieldPath) -> Vec<FieldError> {
    for field in ["apiVersion", "fieldPath"] {
        if let Some(error) = validation::require_text(reference, field, path) {
            return vec![error];
        }
    }
    let (version, field) = (text(reference, "/apiVersion"), text(reference, "/fieldPath"));
    if version != "v1" {
        let detail = format!("error converting fieldPath: unsupported pod version: {version}");
        return vec![FieldError::invalid(&path.child("fieldPath"), field, detail)];
    }
    let subscripted = field.strip_suffix("']").and_then(|field| field.split_once("['"));
    match subscripted {
        Some(("metadata.annotations", key)) => {
            let key = key.to_lowercase();
            let problems = names::qualified_name(&key);
            validation::invalid_for_each(path, key, problems)
        }
        Some(("metadata.labels", key)) => validation::invalid_for_each(path, key, names::qualified_name(key)),
        Some((field, _)) => vec![FieldError::invalid(path, field, "does not support subscript")],
        None if fields.contains(&field) => Vec::new(),
        None if FIELDS.contains(&field) || VOLUME_FIELDS.contains(&field) => {
            vec![FieldError::not_supported(&path.child("fieldPath"), field, fields)]
        }
        None => {
            let detail = format!("error converting fieldPath: field label not supported: {field}");
            vec![FieldError::invalid(&path.child("fieldPath"), field, detail)]
        }
    }
}

fn validate_resource_reference(reference: &Value, in_volume: bool, path: &FieldPath) -> Vec<FieldError> {
    if in_volume && text(reference, "/containerName").is_empty() {
        return vec![FieldError::required(&path.child("containerName"), "")];
    }
    let resource = text(reference, "/resource");
    let huge = ["requests.hugepages-", "limits.hugepages-"].iter().any(|prefix| resource.starts_with(prefix));
    match resource {
        "" => vec![FieldError::required(&path.child("resource"), "")],
        _ if RESOURCES.contains(&resource) || huge => validate_divisor(reference, resource, path),
        _ => vec![FieldError::not_supported(&path.child("resource"), resource, RESOURCES)],
    }
}

/// Validates the divisor of a resource.
fn validate_divisor(reference: &Value, resource: &str, path: &FieldPath) -> Vec<FieldError> {
    const SIZES: &[&str] =
        &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
    const OF_SIZES: &str = "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported \
                            with the";
    let Some(divisor) = present(reference, "/divisor").and_then(quantities::parse) else { return Vec::new() };
    let kind = resource.split_once('.').map_or(resource, |(_, kind)| kind);
    let (allowed, detail): (&[&str], String) = match kind {
        "cpu" => {
            (&["1m", "1"], "only divisor's values 1m and 1 are supported with the cpu resource".to_owned())
        }
        "memory" => (SIZES, format!("{OF_SIZES} memory resource")),
        "ephemeral-storage" => (SIZES, format!("{OF_SIZES} local ephemeral storage resource")),
        _ => (SIZES, format!("{OF_SIZES} hugepages resource")),
    };
    if divisor.is_zero() || allowed.contains(&divisor.to_string().as_str()) {
        return Vec::new();
    }
    vec![FieldError::invalid(&path.child("divisor"), resource, detail)]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::tests::messages;

    fn validation_errors(container: Value) -> Vec<String> {
        messages(validate_environment(&container, &FieldPath::root("c")))
    }

    #[test]
    fn env_var_requires_name_and_one_source() {
        assert!(validation_errors(json!({"env": [{"name": "A", "value": "x"}, {"name": "B", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.labels['a.b/c']"}}}]})).is_empty());
        assert_eq!(
            validation_errors(json!({"env": [{"value": "x"}, {"name": "A=B"}]})),
            [
                "c.env[0].name: Required value",
                r#"c.env[1].name: Invalid value: "A=B": a valid environment variable name must consist only of printable ASCII characters other than '='"#,
            ]
        );
        let from = |from: Value| validation_errors(json!({"env": [{"name": "A", "valueFrom": from}]}));
        assert_eq!(
            from(json!({})),
            [
                r#"c.env[0].valueFrom: Invalid value: "": must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"#
            ]
        );
        assert_eq!(
            from(json!({"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.x"}})),
            [
                r#"c.env[0].valueFrom.fieldRef.fieldPath: Invalid value: "spec.x": error converting fieldPath: field label not supported: spec.x"#
            ]
        );
        assert_eq!(
            from(json!({"secretKeyRef": {"name": "s"}})),
            ["c.env[0].valueFrom.secretKeyRef.key: Required value"]
        );
        assert_eq!(
            from(json!({"resourceFieldRef": {"resource": "x"}})),
            [
                r#"c.env[0].valueFrom.resourceFieldRef.resource: Unsupported value: "x": supported values: "limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory""#
            ]
        );
        let both = json!({"env": [{"name": "A", "value": "x", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]});
        assert_eq!(
            validation_errors(both),
            [r#"c.env[0].valueFrom: Invalid value: "": may not be specified when `value` is not empty"#]
        );
    }

    #[test]
    fn env_from_requires_a_named_source() {
        assert_eq!(
            validation_errors(json!({"envFrom": [{"configMapRef": {"name": ""}}]})),
            ["c.envFrom[0].configMapRef.name: Required value"]
        );
        assert_eq!(
            validation_errors(json!({"envFrom": [{}]})),
            [r#"c.envFrom: Invalid value: "": must specify one of: `configMapRef` or `secretRef`"#]
        );
    }
}
