//! Capacities of devices and the policies of requests for parts of them.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    quantity::Quantity,
};
use serde_json::Value;

use crate::{
    accessors::{list, mark_repeated, present},
    quantities,
    validation::NOT_NEGATIVE,
};

const VALUES_MAX: usize = 10;

/// Validates one capacity. Only devices that several claims may share have policies.
pub(super) fn validate(capacity: &Value, is_shared: bool, path: &FieldPath) -> Vec<FieldError> {
    let Some(policy) = present(capacity, "/requestPolicy") else { return Vec::new() };
    let path = path.child("requestPolicy");
    if !is_shared {
        return vec![FieldError::forbidden(&path, "allowMultipleAllocations must be true")];
    }
    let (values, range) = (list(policy, "/validValues"), present(policy, "/validRange"));
    if !values.is_empty() && range.is_some() {
        let detail = "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the \
                      same time";
        return vec![FieldError::forbidden(&path, detail)];
    }
    let amount = quantity(capacity, "value").unwrap_or(zero());
    let default = quantity(policy, "default");
    let missing = |of: &str| {
        vec![FieldError::required(&path.child("default"), format!("required when {of} is defined"))]
    };
    match (values.is_empty(), range, default) {
        (false, _, None) => missing("validValues"),
        (false, _, Some(default)) => validate_values(values, default, amount, &path.child("validValues")),
        (true, Some(_), None) => missing("validRange"),
        (true, Some(range), Some(default)) => {
            validate_range(range, default, amount, &path.child("validRange"))
        }
        (true, None, _) => Vec::new(),
    }
}

fn zero() -> Quantity {
    Quantity::from_units(0, orlop_api::quantity::Format::DecimalSi)
}

fn quantity(of: &Value, field: &str) -> Option<Quantity> {
    of.get(field).and_then(quantities::parse)
}

/// Validates a list of valid amounts: ascending, unique, within the capacity, the default among them.
fn validate_values(
    values: &[Value],
    default: Quantity,
    capacity: Quantity,
    path: &FieldPath,
) -> Vec<FieldError> {
    let amounts: Vec<Quantity> = values.iter().filter_map(quantities::parse).collect();
    let mut errors = Vec::new();
    for (index, pair) in amounts.windows(2).enumerate() {
        if pair[0] > pair[1] {
            let detail = "values must be sorted in ascending order";
            errors.push(FieldError::invalid(&path.index(index + 1), pair[1].to_string(), detail));
        }
    }
    let mut has_default = false;
    if values.len() > VALUES_MAX {
        errors.push(FieldError::too_many(path, values.len(), VALUES_MAX));
    } else {
        for (index, amount) in amounts.iter().enumerate() {
            if *amount > capacity {
                let detail = format!("option is larger than capacity value: {capacity}");
                errors.push(FieldError::invalid(&path.index(index), amount.to_string(), detail));
            }
        }
        has_default = amounts.contains(&default);
        // Fractions do not count: they are a feature that is off in Kubernetes.
        let repeated = mark_repeated(values, |value| quantities::parse(value).map(|amount| amount.units()));
        for (index, _) in repeated.into_iter().enumerate().filter(|(_, is_repeated)| *is_repeated) {
            let units = amounts.get(index).map_or(0, Quantity::units);
            errors.push(FieldError::duplicate(&path.index(index), units.to_string()));
        }
    }
    if !has_default {
        let detail = "default value is not valid according to the requestPolicy";
        errors.push(FieldError::invalid(path, default.to_string(), detail));
    }
    errors
}

/// Validates a range of valid amounts, in steps.
fn validate_range(range: &Value, default: Quantity, capacity: Quantity, path: &FieldPath) -> Vec<FieldError> {
    let Some(min) = quantity(range, "min") else {
        return vec![FieldError::required(&path.child("min"), "required when validRange is defined")];
    };
    let (max, step) = (quantity(range, "max"), quantity(range, "step"));
    let mut errors = Vec::new();
    let mut refuse = |field: &str, value: Quantity, detail: String| {
        errors.push(FieldError::invalid(&path.child(field), value.to_string(), detail));
    };
    if min > capacity {
        refuse("min", min, format!("min is larger than capacity value: {capacity}"));
    }
    if default < min {
        refuse("default", default, format!("default is less than min: {min}"));
    }
    if let Some(max) = max {
        if min > max {
            refuse("max", min, format!("min is larger than max: {max}"));
        }
        if max > capacity {
            refuse("max", max, format!("max is larger than capacity value: {capacity}"));
        }
        if default > max {
            refuse("default", default, format!("default is more than max: {max}"));
        }
    }
    let Some(step) = step else { return errors };
    if !quantities::is_positive(&step) {
        refuse("step", step, "must be greater than zero".to_owned());
        return errors;
    }
    let first = min.plus(step);
    if first > capacity {
        refuse("step", step, format!("one step {first} is larger than capacity value: {capacity}"));
    }
    let named = [("default", Some(default)), ("min", Some(min)), ("max", max), ("step", Some(step))];
    let given = named.into_iter().filter_map(|(name, amount)| Some((name, amount?)));
    let negative: Vec<_> = given.filter(|(_, amount)| amount.is_negative()).collect();
    for (name, amount) in &negative {
        refuse(name, *amount, NOT_NEGATIVE.to_owned());
    }
    if negative.is_empty() {
        for value in [Some(default), max].into_iter().flatten() {
            let distance = i128::from(value.units()) - i128::from(min.units());
            if distance % i128::from(step.units()) != 0 {
                refuse(
                    "step",
                    value,
                    format!("value is not a multiple of a given step ({step}) from ({min})"),
                );
            }
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::tests::messages;

    fn errors_of(policy: Value) -> Vec<String> {
        let capacity = json!({"value": "10Gi", "requestPolicy": policy});
        messages(validate(&capacity, true, &FieldPath::root("c")))
    }

    #[test]
    fn policies_are_for_shared_devices() {
        let capacity = json!({"value": "1", "requestPolicy": {"default": "1"}});
        assert_eq!(
            messages(validate(&capacity, false, &FieldPath::root("c"))),
            ["c.requestPolicy: Forbidden: allowMultipleAllocations must be true"]
        );
        assert!(validate(&capacity, true, &FieldPath::root("c")).is_empty());
        assert_eq!(
            errors_of(json!({"validValues": ["1Gi"], "validRange": {"min": "1Gi"}})),
            [
                "c.requestPolicy: Forbidden: exactly one policy can be specified, cannot specify \"validValues\" and \
                 \"validRange\" at the same time"
            ]
        );
    }

    #[test]
    fn valid_values_ascend_within_the_capacity() {
        assert!(errors_of(json!({"default": "1Gi", "validValues": ["1Gi", "2Gi"]})).is_empty());
        assert_eq!(
            errors_of(json!({"validValues": ["1Gi"]})),
            ["c.requestPolicy.default: Required value: required when validValues is defined"]
        );
        assert_eq!(
            errors_of(json!({"default": "3Gi", "validValues": ["2Gi", "1Gi", "1Gi", "11Gi"]})),
            [
                "c.requestPolicy.validValues[1]: Invalid value: \"1Gi\": values must be sorted in ascending order",
                "c.requestPolicy.validValues[3]: Invalid value: \"11Gi\": option is larger than capacity value: 10Gi",
                "c.requestPolicy.validValues[2]: Duplicate value: \"1073741824\"",
                "c.requestPolicy.validValues: Invalid value: \"3Gi\": default value is not valid according to the \
                 requestPolicy",
            ]
        );
    }

    #[test]
    fn valid_ranges_are_within_the_capacity_and_in_steps() {
        assert!(
            errors_of(json!({"default": "1Gi", "validRange": {"min": "1Gi", "max": "10Gi", "step": "1Gi"}}))
                .is_empty()
        );
        assert_eq!(
            errors_of(json!({"default": "1", "validRange": {}})),
            ["c.requestPolicy.validRange.min: Required value: required when validRange is defined"]
        );
        assert_eq!(
            errors_of(json!({"default": "1Gi", "validRange": {"min": "11Gi", "max": "10Gi", "step": "0"}})),
            [
                "c.requestPolicy.validRange.min: Invalid value: \"11Gi\": min is larger than capacity value: 10Gi",
                "c.requestPolicy.validRange.default: Invalid value: \"1Gi\": default is less than min: 11Gi",
                "c.requestPolicy.validRange.max: Invalid value: \"11Gi\": min is larger than max: 10Gi",
                "c.requestPolicy.validRange.step: Invalid value: \"0\": must be greater than zero",
            ]
        );
        assert_eq!(
            errors_of(json!({"default": "4", "validRange": {"min": "1", "max": "6", "step": "2"}})),
            [
                "c.requestPolicy.validRange.step: Invalid value: \"4\": value is not a multiple of a given step (2) from \
                 (1)",
                "c.requestPolicy.validRange.step: Invalid value: \"6\": value is not a multiple of a given step (2) from \
                 (1)",
            ]
        );
        // Fractions are rounded up.
        assert!(
            errors_of(json!({"default": "1500m", "validRange": {"min": "1", "max": "4", "step": "1"}}))
                .is_empty()
        );
        assert_eq!(
            errors_of(json!({"default": "0", "validRange": {"min": "-1", "step": "1"}})),
            ["c.requestPolicy.validRange.min: Invalid value: \"-1\": must be greater than or equal to 0"]
        );
    }
}
