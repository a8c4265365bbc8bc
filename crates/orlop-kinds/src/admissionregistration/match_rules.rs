//! Validation of the rules by which webhooks and policies match requests.

use std::collections::HashSet;

use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::{Value, json};

use crate::{accessors::texts, validation};

/// Validates a RuleWithOperations.
pub(crate) fn validate_rule(rule: &Value, path: &FieldPath) -> Vec<FieldError> {
    const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    let mut errors = Vec::new();
    let operations = texts(rule, "/operations");
    let at = path.child("operations");
    if operations.is_empty() {
        errors.push(FieldError::required(&at, ""));
    }
    if operations.len() > 1 && operations.contains(&"*") {
        let detail = "if '*' is present, must not specify other operations";
        errors.push(FieldError::invalid(&at, json!(operations), detail));
    }
    for (index, operation) in operations.iter().enumerate() {
        if !OPERATIONS.contains(operation) {
            errors.push(FieldError::not_supported(&at.index(index), *operation, OPERATIONS));
        }
    }
    for (field, items) in [("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        let (values, at) = (texts(rule, &format!("/{field}")), path.child(field));
        if values.is_empty() {
            errors.push(FieldError::required(&at, ""));
        }
        if values.len() > 1 && values.contains(&"*") {
            let detail = format!("if '*' is present, must not specify other {items}");
            errors.push(FieldError::invalid(&at, json!(values), detail));
        }
        let empty = values.iter().enumerate().filter(|(_, value)| field == "apiVersions" && value.is_empty());
        errors.extend(empty.map(|(index, _)| FieldError::required(&at.index(index), "")));
    }
    errors.extend(validate_rule_resources(&texts(rule, "/resources"), &path.child("resources")));
    errors.extend(validation::validate_supported(rule, "scope", path, &["*", "Cluster", "Namespaced"]));
    errors
}

fn validate_rule_resources(resources: &[&str], path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if resources.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    // `pods/*` covers all subresources of pods; `*/status` covers status of all resources.
    let (mut whole, mut everywhere) = (HashSet::new(), HashSet::new());
    for (index, given) in resources.iter().enumerate() {
        let at = path.index(index);
        if given.is_empty() {
            errors.push(FieldError::required(&at, ""));
        }
        let Some((resource, subresource)) = given.split_once('/') else { continue };
        for (holds, wider) in [
            (whole.contains(resource), format!("{resource}/*")),
            (everywhere.contains(subresource), format!("*/{subresource}")),
        ] {
            if holds {
                let detail = format!("if '{wider}' is present, must not specify {given}");
                errors.push(FieldError::invalid(&at, *given, detail));
            }
        }
        if subresource == "*" {
            whole.insert(resource);
        }
        if resource == "*" {
            everywhere.insert(subresource);
        }
    }
    if resources.len() > 1 && resources.contains(&"*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        errors.push(FieldError::invalid(path, json!(resources), detail));
    }
    if resources.contains(&"*")
        && resources.iter().any(|resource| *resource != "*" && !resource.contains('/'))
    {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.push(FieldError::invalid(path, json!(resources), detail));
    }
    errors
}
