//! LimitRange: bounds on the resources of each object in a namespace.

use std::collections::BTreeSet;

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names,
    quantity::Quantity,
};
use serde_json::Value;

use super::pod;
use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{list, map, mark_repeated, text},
    defaulting,
    quantities::{self, canonical_text},
    strategy::Strategy,
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { allow_create_on_update: true, names_objects: true, ..StrategyFlags::BUILTIN },
    strategy: &LimitRange,
    ..BuiltinKind::new("", "limitranges")
};

pub(crate) struct LimitRange;

impl Strategy for LimitRange {
    fn set_defaults(&self, object: &mut Value) {
        for item in defaulting::object_mut(object, "spec")
            .into_iter()
            .flat_map(|spec| defaulting::items_mut(spec, "limits"))
        {
            if text(item, "/type") != "Container" {
                continue;
            }
            // default := max; defaultRequest := default, else min.
            let most = map(item, "/max").clone();
            defaulting::set_absent_entries(item, "default", &most);
            let limit = map(item, "/default").clone();
            defaulting::set_absent_entries(item, "defaultRequest", &limit);
            let least = map(item, "/min").clone();
            defaulting::set_absent_entries(item, "defaultRequest", &least);
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let limits = list(object, "/spec/limits");
        let path = FieldPath::root("spec").child("limits");
        let mut errors = Vec::new();
        let repeated = mark_repeated(limits, |item| text(item, "/type"));
        for ((index, item), repeated) in limits.iter().enumerate().zip(repeated) {
            let path = path.index(index);
            errors.extend(validate_type(item, &path));
            if repeated {
                errors.push(FieldError::duplicate(&path.child("type"), text(item, "/type")));
            }
            errors.extend(validate_bounds(item, &path));
        }
        errors
    }
}

fn validate_type(item: &Value, path: &FieldPath) -> Vec<FieldError> {
    let (given, path) = (text(item, "/type"), path.child("type"));
    let problems = names::qualified_name(given);
    if !problems.is_empty() {
        return validation::invalid_for_each(&path, given, problems);
    }
    if !given.contains('/') && !matches!(given, "Pod" | "Container" | "PersistentVolumeClaim") {
        return vec![FieldError::invalid(&path, given, "must be a standard limit type or fully qualified")];
    }
    Vec::new()
}

fn validate_bounds(item: &Value, path: &FieldPath) -> Vec<FieldError> {
    let kind = text(item, "/type");
    let mut errors = Vec::new();
    let mut keys: BTreeSet<&String> = BTreeSet::new();
    for field in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        let entries = map(item, &format!("/{field}"));
        if kind == "Pod" && field.starts_with("default") {
            if !entries.is_empty() {
                let detail = "may not be specified when `type` is 'Pod'";
                errors.push(FieldError::forbidden(&path.child(field), detail));
            }
            continue;
        }
        keys.extend(entries.keys());
        errors.extend(
            entries
                .keys()
                .flat_map(|key| pod::validate_limit_resource_name(kind, key, &path.child(field).key(key))),
        );
    }
    let storage = |field: &str| map(item, field).contains_key("storage");
    if kind == "PersistentVolumeClaim" && !storage("/min") && !storage("/max") {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        errors.push(FieldError::required(&path.child("limits"), detail));
    }
    errors.extend(keys.into_iter().flat_map(|key| validate_order(item, key, path)));
    errors
}

/// Validates min <= defaultRequest <= default <= max.
fn validate_order(item: &Value, key: &str, path: &FieldPath) -> Vec<FieldError> {
    let is_pod = text(item, "/type") == "Pod";
    let of = |field: &str| {
        // A Pod limit has no defaults; given ones are already errors.
        map(item, &format!("/{field}")).get(key).filter(|_| !(is_pod && field.starts_with("default")))
    };
    // Lower and upper bound, the field that reports the error, the field whose value it shows, and both names.
    const PAIRS: [(&str, &str, &str, &str, &str, &str); 6] = [
        ("min", "max", "min", "min", "min value", "max value"),
        ("min", "defaultRequest", "defaultRequest", "defaultRequest", "min value", "default request value"),
        ("defaultRequest", "max", "defaultRequest", "defaultRequest", "default request value", "max value"),
        (
            "defaultRequest",
            "default",
            "defaultRequest",
            "defaultRequest",
            "default request value",
            "default limit value",
        ),
        ("min", "default", "default", "min", "min value", "default value"),
        ("default", "max", "default", "max", "default value", "max value"),
    ];
    let mut errors = Vec::new();
    for (less, more, at, value, less_word, more_word) in PAIRS {
        let (Some(low), Some(high)) = (of(less), of(more)) else { continue };
        if quantities::parse(low) > quantities::parse(high) {
            let detail = format!(
                "{less_word} {} is greater than {more_word} {}",
                canonical_text(Some(low)),
                canonical_text(Some(high))
            );
            errors.push(FieldError::invalid(&path.child(at).key(key), canonical_text(of(value)), detail));
        }
    }
    errors.extend(validate_ratio(item, key, path));
    errors
}

/// Validates maxLimitRequestRatio: at least 1, and at most max / min.
fn validate_ratio(item: &Value, key: &str, path: &FieldPath) -> Vec<FieldError> {
    let amount = |field: &str| map(item, &format!("/{field}")).get(key).and_then(quantities::parse);
    let Some(ratio) = amount("maxLimitRequestRatio") else { return Vec::new() };
    let invalid = |why: String| {
        FieldError::invalid(&path.child("maxLimitRequestRatio").key(key), ratio.to_string(), why)
    };
    let mut errors = Vec::new();
    if Quantity::parse("1").is_ok_and(|one| ratio < one) {
        errors.push(invalid(format!("ratio {ratio} is less than 1")));
    }
    if let (Some(least), Some(most)) = (amount("min"), amount("max"))
        && let room = most.milli_units() as f64 / least.milli_units() as f64
        && ratio.milli_units() as f64 / 1000.0 > room
    {
        errors.push(invalid(format!("ratio {ratio} is greater than max/min = {room:.6}")));
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::tests::messages;

    #[test]
    fn limits_default_and_must_be_ordered() {
        let mut range = json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Gi"}}]}});
        LimitRange.set_defaults(&mut range);
        assert_eq!(range["spec"]["limits"][0]["default"], json!({"cpu": "2"}));
        assert_eq!(range["spec"]["limits"][0]["defaultRequest"], json!({"cpu": "2", "memory": "1Gi"}));
        assert!(messages(LimitRange.validate(&range)).is_empty());
        let validation_errors =
            |limits: Value| messages(LimitRange.validate(&json!({"spec": {"limits": limits}})));
        assert_eq!(
            validation_errors(
                json!([{"type": "Pod", "min": {"cpu": "3"}, "max": {"cpu": "2"}, "default": {"cpu": "1"}}, {"type": "Pod"}, {"type": "x"}])
            ),
            [
                "spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'",
                r#"spec.limits[0].min[cpu]: Invalid value: "3": min value 3 is greater than max value 2"#,
                r#"spec.limits[1].type: Duplicate value: "Pod""#,
                r#"spec.limits[2].type: Invalid value: "x": must be a standard limit type or fully qualified"#,
            ]
        );
        assert_eq!(
            validation_errors(json!([{"type": "PersistentVolumeClaim"}])),
            [
                "spec.limits[0].limits: Required value: either minimum or maximum storage value is required, but neither was provided"
            ]
        );
    }
}
