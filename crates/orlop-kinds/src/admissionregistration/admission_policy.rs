//! Strategy that ValidatingAdmissionPolicy and MutatingAdmissionPolicy share. CEL expressions are validated
//! where they are compiled.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    group_version::GroupVersion,
    labels,
};
use serde_json::Value;

use super::webhook_configuration::{set_match_defaults, validate_match_conditions, validate_rule};
use crate::{
    accessors::{list, present, text},
    defaulting,
    printer::ColumnDefinition,
    strategy::Strategy,
    validation,
};

pub(crate) const fn column_definitions(counted: &'static str) -> [ColumnDefinition; 4] {
    [
        ColumnDefinition::NAME,
        ColumnDefinition::integer(counted),
        ColumnDefinition::text("ParamKind"),
        ColumnDefinition::AGE,
    ]
}

/// Returns the cell that shows the kind of the parameters.
pub(crate) fn param_kind(policy: &Value) -> Value {
    present(policy, "/spec/paramKind").map_or_else(
        || "<unset>".into(),
        |kind| format!("{}/{}", text(kind, "/apiVersion"), text(kind, "/kind")).into(),
    )
}

/// Strategy of both kinds of policies.
pub(crate) struct AdmissionPolicy {
    pub(crate) mutating: bool,
    /// Validates the fields that only one of the two kinds has.
    pub(crate) validate_rules: fn(&Value, &FieldPath) -> Vec<FieldError>,
}

impl Strategy for AdmissionPolicy {
    fn set_defaults(&self, object: &mut Value) {
        let mutating = self.mutating;
        let Some(spec) = defaulting::object_mut(object, "spec") else { return };
        defaulting::set_if_absent(spec, "failurePolicy", "Fail");
        if mutating {
            defaulting::set_if_absent(spec, "reinvocationPolicy", "Never");
        }
        if let Some(constraints) = defaulting::object_mut(spec, "matchConstraints") {
            set_match_resources_defaults(constraints);
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let (spec, path) = (object.get("spec").unwrap_or(&Value::Null), FieldPath::root("spec"));
        let mut errors: Vec<FieldError> =
            validation::validate_supported(spec, "failurePolicy", &path, &["Fail", "Ignore"])
                .into_iter()
                .collect();
        errors.extend(validate_param_kind(spec, &path.child("paramKind")));
        errors.extend(validate_match_conditions(spec, &path));
        let at = path.child("matchConstraints");
        match present(spec, "/matchConstraints") {
            None => errors.push(FieldError::required(&at, "")),
            Some(constraints) => {
                errors.extend(validate_match_resources(constraints, &at));
                if list(constraints, "/resourceRules").is_empty() {
                    errors.push(FieldError::required(&at.child("resourceRules"), ""));
                }
            }
        }
        errors.extend((self.validate_rules)(spec, &path));
        errors
    }
}

/// Validates paramKind.
fn validate_param_kind(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let Some(kind) = present(spec, "/paramKind") else { return Vec::new() };
    let version = text(kind, "/apiVersion");
    let mut errors: Vec<FieldError> =
        validation::require_text(kind, "apiVersion", path).into_iter().collect();
    if GroupVersion::parse(version).is_err() {
        let detail = format!("unexpected GroupVersion string: {version}");
        errors.push(FieldError::invalid(&path.child("apiVersion"), version, detail));
    }
    errors.extend(validation::require_text(kind, "kind", path));
    errors
}

pub(crate) fn set_match_resources_defaults(matched: &mut Value) {
    set_match_defaults(matched);
    for field in ["resourceRules", "excludeResourceRules"] {
        defaulting::items_mut(matched, field).for_each(|rule| defaulting::set_if_absent(rule, "scope", "*"));
    }
}

/// Validates the matchConstraints of a policy or the matchResources of a binding.
pub(crate) fn validate_match_resources(matched: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> =
        validation::validate_supported(matched, "matchPolicy", path, &["Equivalent", "Exact"])
            .into_iter()
            .collect();
    for field in ["namespaceSelector", "objectSelector"] {
        if let Some(given) = present(matched, &format!("/{field}")) {
            errors.extend(labels::validate_label_selector(given, &path.child(field)));
        }
    }
    for field in ["resourceRules", "excludeResourceRules"] {
        errors.extend(validation::validate_items(matched, field, path, validate_rule));
    }
    errors
}
