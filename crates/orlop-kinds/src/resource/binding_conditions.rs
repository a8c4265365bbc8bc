//! Binding conditions of devices: what must hold before a pod is bound, and what makes the attempt fail.

use std::collections::HashSet;

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names,
};
use serde_json::Value;

use crate::{accessors::list, validation::invalid_for_each};

const CONDITIONS_MAX: usize = 4;

/// Validates `bindingConditions` and `bindingFailureConditions` of a device or an allocation result.
pub(super) fn validate(of: &Value, path: &FieldPath) -> Vec<FieldError> {
    let (conditions, failures) = (list(of, "/bindingConditions"), list(of, "/bindingFailureConditions"));
    let (at, failures_at) = (path.child("bindingConditions"), path.child("bindingFailureConditions"));
    let mut errors = validate_names(conditions, &at);
    errors.extend(validate_names(failures, &failures_at));
    let is_repeated = |items: &[Value], index: usize| items[..index].contains(&items[index]);
    for (index, condition) in conditions.iter().enumerate() {
        if is_repeated(conditions, index) {
            errors.push(FieldError::duplicate(&at.index(index), condition.clone()));
        }
    }
    let known: HashSet<Option<&str>> = conditions.iter().map(Value::as_str).collect();
    for (index, condition) in failures.iter().enumerate() {
        let at = failures_at.index(index);
        if is_repeated(failures, index) {
            errors.push(FieldError::duplicate(&at, condition.clone()));
        }
        if known.contains(&condition.as_str()) {
            let detail = "bindingFailureConditions must not overlap with bindingConditions";
            errors.push(FieldError::invalid(&at, condition.clone(), detail));
        }
    }
    match (conditions.is_empty(), failures.is_empty()) {
        (true, false) => {
            let detail = "bindingConditions are required to use bindingFailureConditions";
            errors.push(FieldError::invalid(&at, Value::Null, detail));
        }
        (false, true) => {
            let detail = "bindingFailureConditions are required to use bindingConditions";
            errors.push(FieldError::invalid(&failures_at, Value::Null, detail));
        }
        _ => {}
    }
    errors
}

fn validate_names(conditions: &[Value], path: &FieldPath) -> Vec<FieldError> {
    if conditions.len() > CONDITIONS_MAX {
        return vec![FieldError::too_many(path, conditions.len(), CONDITIONS_MAX).declaratively()];
    }
    let each = conditions.iter().filter_map(Value::as_str).enumerate();
    each.flat_map(|(index, name)| invalid_for_each(&path.index(index), name, names::qualified_name(name)))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::tests::messages;

    #[test]
    fn conditions_come_in_disjoint_pairs() {
        let errors = |of: Value| messages(validate(&of, &FieldPath::root("d")));
        assert!(errors(json!({})).is_empty());
        assert!(errors(json!({"bindingConditions": ["a"], "bindingFailureConditions": ["b"]})).is_empty());
        assert_eq!(
            errors(json!({"bindingConditions": ["a"]})),
            [
                "d.bindingFailureConditions: Invalid value: null: bindingFailureConditions are required to use \
                 bindingConditions"
            ]
        );
        assert_eq!(
            errors(json!({"bindingFailureConditions": ["a"]})),
            ["d.bindingConditions: Invalid value: null: bindingConditions are required to use \
                 bindingFailureConditions"]
        );
        assert_eq!(
            errors(json!({"bindingConditions": ["a", "a"], "bindingFailureConditions": ["b", "b", "a"]})),
            [
                "d.bindingConditions[1]: Duplicate value: \"a\"",
                "d.bindingFailureConditions[1]: Duplicate value: \"b\"",
                "d.bindingFailureConditions[2]: Invalid value: \"a\": bindingFailureConditions must not overlap with \
                 bindingConditions",
            ]
        );
        let many = json!(["a", "b", "c", "d", "e"]);
        assert_eq!(
            errors(json!({"bindingConditions": many, "bindingFailureConditions": [" "]}))[..1],
            ["d.bindingConditions: Too many: 5: must have at most 4 items"]
        );
    }
}
