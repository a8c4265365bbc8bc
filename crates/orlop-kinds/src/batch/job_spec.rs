//! Job spec, of a Job or of a CronJob's template.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names,
};
use serde_json::{Value, json};

use super::success_policy;
use crate::{
    accessors::{integer, list, present, text},
    core::pod::{self, Owner},
    defaulting, validation,
};

const PARALLELISM_INDEXED_MAX: i64 = 100_000;
const RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;
const CONDITIONS_MAX: usize = 20;

/// Sets the defaults of the pod template and of podFailurePolicy, for Jobs and CronJobs.
pub(crate) fn set_template_defaults(spec: &mut Value) {
    defaulting::set_if_absent(spec, "template", json!({}));
    if let Some(template) = defaulting::object_mut(spec, "template") {
        pod::set_template_defaults(template);
    }
    for rule in defaulting::object_mut(spec, "podFailurePolicy")
        .into_iter()
        .flat_map(|policy| defaulting::items_mut(policy, "rules"))
    {
        defaulting::items_mut(rule, "onPodConditions")
            .for_each(|pattern| defaulting::set_if_zero(pattern, "status", "True"));
    }
}

/// Validates managedBy: a domain-prefixed path.
fn validate_managed_by(manager: &str, path: &FieldPath) -> Vec<FieldError> {
    const LENGTH_MAX: usize = 63;
    let mut errors = Vec::new();
    match manager.split_once('/') {
        _ if manager.is_empty() => errors.push(FieldError::required(path, "")),
        Some((domain, rest)) if !domain.is_empty() && !rest.is_empty() => {
            errors.extend(validation::validate_dns_subdomain(domain, path));
        }
        _ => {
            let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            errors.push(FieldError::invalid(path, manager, detail));
        }
    }
    if manager.len() > LENGTH_MAX {
        errors.push(FieldError::too_long(path, LENGTH_MAX));
    }
    errors
}

pub(crate) fn validate(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        errors.extend(validation::validate_non_negative(spec, field, path));
    }
    if let Some(manager) = present(spec, "/managedBy").and_then(Value::as_str) {
        errors.extend(validate_managed_by(manager, &path.child("managedBy")));
    }
    if present(spec, "/maxFailedIndexes").is_some() && present(spec, "/backoffLimitPerIndex").is_none() {
        let detail = "when maxFailedIndexes is specified";
        errors.push(FieldError::required(&path.child("backoffLimitPerIndex"), detail));
    }
    errors.extend(validate_completion_mode(spec, path));
    if let Some(policy) = present(spec, "/podFailurePolicy") {
        errors.extend(validate_failure_policy(spec, policy, &path.child("podFailurePolicy").child("rules")));
    }
    let replacement: &[&str] = if present(spec, "/podFailurePolicy").is_some() {
        &["Failed"]
    } else {
        &["Failed", "TerminatingOrFailed"]
    };
    errors.extend(validation::validate_supported(spec, "podReplacementPolicy", path, replacement));
    let template = spec.get("template").unwrap_or(&Value::Null);
    errors.extend(pod::validate_template(
        template,
        None,
        &Owner { restarts_always: None },
        &path.child("template"),
    ));
    errors
        .extend(validate_restart_policy(spec, &path.child("template").child("spec").child("restartPolicy")));
    errors
}

fn validate_completion_mode(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> =
        validation::validate_supported(spec, "completionMode", path, &["NonIndexed", "Indexed"])
            .into_iter()
            .collect();
    if text(spec, "/completionMode") == "Indexed" {
        if present(spec, "/completions").is_none() {
            errors.push(FieldError::required(&path.child("completions"), "when completion mode is Indexed"));
        }
        let parallelism = integer(spec, "/parallelism");
        if parallelism > PARALLELISM_INDEXED_MAX {
            let detail = format!(
                "must be less than or equal to {PARALLELISM_INDEXED_MAX} when completion mode is Indexed"
            );
            errors.push(FieldError::invalid(&path.child("parallelism"), parallelism, detail));
        }
        let failed = integer(spec, "/maxFailedIndexes");
        if present(spec, "/completions").is_some() && failed > integer(spec, "/completions") {
            let detail = "must be less than or equal to completions";
            errors.push(FieldError::invalid(&path.child("maxFailedIndexes"), failed, detail));
        }
        if let Some(policy) = present(spec, "/successPolicy") {
            errors.extend(success_policy::validate(spec, policy, &path.child("successPolicy")));
        }
        return errors;
    }
    for field in ["backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"] {
        if let Some(value) = present(spec, &format!("/{field}")) {
            errors.push(FieldError::invalid(
                &path.child(field),
                value.clone(),
                "requires indexed completion mode",
            ));
        }
    }
    errors
}

fn validate_restart_policy(spec: &Value, path: &FieldPath) -> Option<FieldError> {
    match text(spec, "/template/spec/restartPolicy") {
        "Always" | "" => Some(FieldError::required(path, "valid values: \"OnFailure\", \"Never\"")),
        "OnFailure" if present(spec, "/podFailurePolicy").is_some() => {
            let detail = "only \"Never\" is supported when podFailurePolicy is specified";
            Some(FieldError::invalid(path, "OnFailure", detail))
        }
        "OnFailure" | "Never" => None,
        other => Some(FieldError::not_supported(path, other, &["OnFailure", "Never"])),
    }
}

fn validate_failure_policy(spec: &Value, policy: &Value, path: &FieldPath) -> Vec<FieldError> {
    const ACTIONS: &[&str] = &["Count", "FailIndex", "FailJob", "Ignore"];
    let rules = list(policy, "/rules");
    let mut errors = Vec::new();
    if rules.len() > RULES_MAX {
        errors.push(FieldError::too_many(path, rules.len(), RULES_MAX));
    }
    for (index, rule) in rules.iter().enumerate() {
        let path = path.index(index);
        match text(rule, "/action") {
            "" => {
                let detail = "valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]";
                errors.push(FieldError::required(&path.child("action"), detail));
            }
            "FailIndex" if present(spec, "/backoffLimitPerIndex").is_none() => {
                let detail = "requires the backoffLimitPerIndex to be set";
                errors.push(FieldError::invalid(&path.child("action"), "FailIndex", detail));
            }
            _ => errors.extend(validation::validate_supported(rule, "action", &path, ACTIONS)),
        }
        if let Some(codes) = present(rule, "/onExitCodes") {
            errors.extend(validate_exit_codes(spec, codes, &path.child("onExitCodes")));
        }
        let conditions = list(rule, "/onPodConditions").len();
        if conditions > CONDITIONS_MAX {
            let path = path.child("onPodConditions");
            errors.push(FieldError::too_many(&path, conditions, CONDITIONS_MAX));
        }
        errors.extend(validation::validate_items(rule, "onPodConditions", &path, |pattern, path| {
            let kind = text(pattern, "/type");
            let mut errors =
                validation::invalid_for_each(&path.child("type"), kind, names::qualified_name(kind));
            errors.extend(validation::validate_supported(
                pattern,
                "status",
                path,
                &["False", "True", "Unknown"],
            ));
            errors
        }));
        let codes = present(rule, "/onExitCodes").is_some();
        if codes == (conditions > 0) {
            let detail = match codes {
                true => "specifying both OnExitCodes and OnPodConditions is not supported",
                false => "specifying one of OnExitCodes and OnPodConditions is required",
            };
            let mut error = FieldError::invalid_printed(&path, "", detail);
            error.value = None;
            errors.push(error);
        }
    }
    errors
}

fn validate_exit_codes(spec: &Value, codes: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match text(codes, "/operator") {
        "" => errors.push(FieldError::required(&path.child("operator"), "valid values: [\"In\" \"NotIn\"]")),
        _ => errors.extend(validation::validate_supported(codes, "operator", path, &["In", "NotIn"])),
    }
    if let Some(name) = present(codes, "/containerName").and_then(Value::as_str) {
        let containers = ["/template/spec/containers", "/template/spec/initContainers"];
        let known = containers.iter().flat_map(|pointer| list(spec, pointer));
        if !known.map(|container| text(container, "/name")).any(|known| known == name) {
            let detail = "must be one of the container or initContainer names in the pod template";
            errors.push(FieldError::invalid(&path.child("containerName"), name, detail));
        }
    }
    let values = list(codes, "/values");
    let at = path.child("values");
    if values.is_empty() {
        errors.push(FieldError::invalid(&at, json!([]), "at least one value is required"));
    } else if values.len() > EXIT_CODES_MAX {
        errors.push(FieldError::too_many(&at, values.len(), EXIT_CODES_MAX));
    }
    for (index, value) in values.iter().enumerate() {
        if text(codes, "/operator") == "In" && value.as_i64() == Some(0) {
            errors.push(FieldError::invalid(&at.index(index), 0, "must not be 0 for the In operator"));
        }
        if values[..index].contains(value) {
            errors.push(FieldError::duplicate(&at.index(index), value.clone()));
        }
    }
    if !values.is_sorted_by_key(Value::as_i64) {
        errors.push(FieldError::invalid(&at, values.to_vec(), "must be ordered"));
    }
    errors
}
