//! Strategy that ValidatingAdmissionPolicy and MutatingAdmissionPolicy share.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    group_version::GroupVersion,
    labels, names,
};
use serde_json::Value;

use super::{
    match_conditions::{expressions, validate_match_conditions},
    match_rules::validate_rule,
    policy_expressions::PolicyExpressions,
    static_names::{name_warning, validate_name},
    webhook_configuration::set_match_defaults,
};
use crate::{
    accessors::{list, present, text, texts},
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
    /// Validates the fields that only one of the two kinds has. Takes the policy, and compiles expressions.
    pub(crate) validate_rules: fn(&Value, &mut PolicyExpressions<'_>, &FieldPath) -> Vec<FieldError>,
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
        let mut errors = self.validate_policy(object, None);
        errors.extend(validate_name(object));
        errors
    }

    fn warnings_on_update(&self, object: &Value, _old: &Value) -> Vec<String> {
        name_warning(object).into_iter().collect()
    }

    fn validate_replacement(&self, object: &Value, old: &Value, subresource: &str) -> Vec<FieldError> {
        match subresource {
            "" => self.validate_policy(object, Some(old)),
            _ => validate_status(object),
        }
    }
}

impl AdmissionPolicy {
    fn validate_policy(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let (spec, path) = (object.get("spec").unwrap_or(&Value::Null), FieldPath::root("spec"));
        let old = old.and_then(|old| old.get("spec"));
        let mut errors: Vec<FieldError> =
            validation::validate_supported(spec, "failurePolicy", &path, &["Fail", "Ignore"])
                .into_iter()
                .collect();
        errors.extend(validate_param_kind(spec, &path.child("paramKind")));
        let at = path.child("matchConstraints");
        match present(spec, "/matchConstraints") {
            None => errors.push(FieldError::required(&at, "")),
            Some(constraints) => {
                errors.extend(validate_match_resources(constraints, &at, self.mutating));
                if list(constraints, "/resourceRules").is_empty() {
                    errors.push(FieldError::required(&at.child("resourceRules"), ""));
                }
            }
        }
        let same = |field: &str| old.is_some_and(|old| old.get(field) == spec.get(field));
        if !(same("paramKind") && same("matchConditions")) {
            let has_params = present(spec, "/paramKind").is_some();
            let stored: Vec<&str> = old.into_iter().flat_map(expressions).collect();
            errors.extend(validate_match_conditions(spec, &path, has_params, &stored));
        }
        let composed = self.mutating || !list(spec, "/variables").is_empty();
        let mut compiler = PolicyExpressions::new(spec, old, composed);
        errors.extend(compiler.validate_variables(spec, &path));
        errors.extend((self.validate_rules)(object, &mut compiler, &path));
        errors
    }
}

/// Validates the status of a ValidatingAdmissionPolicy.
fn validate_status(object: &Value) -> Vec<FieldError> {
    let path = FieldPath::root("status").child("typeChecking").child("expressionWarnings");
    let warnings = list(object, "/status/typeChecking/expressionWarnings").iter().enumerate();
    warnings
        .flat_map(|(index, warning)| {
            let path = path.index(index);
            let fields = ["warning", "fieldRef"];
            fields.into_iter().filter_map(move |field| validation::require_text(warning, field, &path))
        })
        .collect()
}

/// Validates paramKind.
fn validate_param_kind(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let Some(param) = present(spec, "/paramKind") else { return Vec::new() };
    let mut errors = Vec::new();
    let (version, at) = (text(param, "/apiVersion"), path.child("apiVersion"));
    match GroupVersion::parse(version) {
        _ if version.is_empty() => errors.push(FieldError::required(&at, "")),
        Err(_) => {
            let detail = format!("unexpected GroupVersion string: {version}");
            errors.push(FieldError::invalid(&at, version, detail));
        }
        Ok(parsed) => {
            let group_problems = match parsed.group.is_empty() {
                true => Vec::new(),
                false => names::dns1123_subdomain(&parsed.group),
            };
            errors.extend(joined_problems(&at, &parsed.group, "", &group_problems));
            if parsed.version.is_empty() {
                errors.push(FieldError::invalid(&at, version, "version must be specified"));
            } else {
                let problems = names::dns1035_label(&parsed.version);
                errors.extend(joined_problems(&at, &parsed.version, "", &problems));
            }
        }
    }
    let (kind, at) = (text(param, "/kind"), path.child("kind"));
    if kind.is_empty() {
        errors.push(FieldError::required(&at, ""));
    } else {
        let problems = names::dns1035_label(&kind.to_lowercase());
        let prefix = "may have mixed case, but should otherwise match: ";
        errors.extend(joined_problems(&at, kind, prefix, &problems));
    }
    errors
}

/// Returns one error for all problems of a value.
fn joined_problems(path: &FieldPath, value: &str, prefix: &str, problems: &[String]) -> Option<FieldError> {
    let detail = || format!("{prefix}{}", problems.join(","));
    (!problems.is_empty()).then(|| FieldError::invalid(path, value, detail()))
}

pub(crate) fn set_match_resources_defaults(matched: &mut Value) {
    set_match_defaults(matched);
    for field in ["resourceRules", "excludeResourceRules"] {
        defaulting::items_mut(matched, field).for_each(|rule| defaulting::set_if_absent(rule, "scope", "*"));
    }
}

/// Validates the matchConstraints of a policy or the matchResources of a binding. Only creates and updates can be
/// mutated.
pub(crate) fn validate_match_resources(matched: &Value, path: &FieldPath, mutating: bool) -> Vec<FieldError> {
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
        errors.extend(validation::validate_items(matched, field, path, validate_named_rule));
    }
    if mutating {
        let at = path.child("resourceRules").child("operations");
        for rule in list(matched, "/resourceRules") {
            let operations = texts(rule, "/operations").into_iter();
            let unfit = operations.filter(|it| !matches!(*it, "CREATE" | "UPDATE"));
            errors.extend(unfit.map(|it| FieldError::not_supported(&at, it, &["CREATE", "UPDATE"])));
        }
    }
    errors
}

/// Validates a NamedRuleWithOperations.
fn validate_named_rule(rule: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let resource_names = texts(rule, "/resourceNames");
    for (index, name) in resource_names.iter().enumerate() {
        let at = path.child("resourceNames").index(index);
        errors.extend(validation::invalid_for_each(&at, *name, names::path_segment(name)));
        if resource_names.iter().take(index).any(|before| before == name) {
            errors.push(FieldError::duplicate(&at, *name));
        }
    }
    errors.extend(validate_rule(rule, path));
    errors
}
