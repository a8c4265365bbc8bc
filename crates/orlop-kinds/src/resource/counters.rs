//! Counters that devices of a pool share.

use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::Value;

use super::{device_claim::validate_up_to, qualified_names::declared};
use crate::{
    accessors::{map, mark_repeated, text},
    validation::{require_text, validate_dns_label},
};

const COUNTER_SETS_MAX: usize = 8;
const COUNTERS_MAX: usize = 32;
const CONSUMPTIONS_MAX: usize = 2;

/// Validates `sharedCounters` of a slice.
pub(super) fn validate_sets(sets: &[Value], path: &FieldPath) -> Vec<FieldError> {
    validate_each(sets, "name", COUNTER_SETS_MAX, path)
}

/// Validates `consumesCounters` of a device.
pub(super) fn validate_consumptions(consumptions: &[Value], path: &FieldPath) -> Vec<FieldError> {
    validate_each(consumptions, "counterSet", CONSUMPTIONS_MAX, path)
}

/// Validates sets of counters with unique names.
fn validate_each(sets: &[Value], name: &str, count_max: usize, path: &FieldPath) -> Vec<FieldError> {
    let pointer = format!("/{name}");
    let mut errors = Vec::new();
    if sets.len() <= count_max {
        let repeated = mark_repeated(sets, |set| text(set, &pointer)).into_iter().enumerate();
        let repeated = repeated.filter(|(_, is_repeated)| *is_repeated);
        errors.extend(declared(
            repeated.map(|(index, _)| FieldError::duplicate(&path.index(index), sets[index].clone())),
        ));
    }
    errors.extend(validate_up_to(sets, count_max, path, |set, path| {
        let mut errors = match require_text(set, name, path) {
            Some(error) => declared([error]),
            None => declared(validate_dns_label(text(set, &pointer), &path.child(name))),
        };
        let (counters, path) = (map(set, "/counters"), path.child("counters"));
        if counters.is_empty() {
            errors.push(FieldError::required(&path, "").declaratively());
        } else if counters.len() > COUNTERS_MAX {
            errors.push(FieldError::too_many(&path, counters.len(), COUNTERS_MAX));
        }
        errors.extend(counters.keys().flat_map(|counter| declared(validate_dns_label(counter, &path))));
        errors
    }));
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::tests::messages;

    #[test]
    fn counter_sets_are_named_and_not_empty() {
        let errors = |sets: Value| messages(validate_sets(sets.as_array().unwrap(), &FieldPath::root("s")));
        let set = json!({"name": "a", "counters": {"memory": {"value": "1Gi"}}});
        assert!(errors(json!([set])).is_empty());
        assert_eq!(
            errors(json!([set, set, {}])),
            [
                "s[1]: Duplicate value: {\"counters\":{\"memory\":{\"value\":\"1Gi\"}},\"name\":\"a\"}",
                "s[2].name: Required value",
                "s[2].counters: Required value",
            ]
        );
        let counters: serde_json::Map<String, Value> =
            (0..33).map(|index| (format!("c{index}"), json!({"value": "1"}))).collect();
        assert_eq!(
            errors(json!([{"name": "a", "counters": counters}])),
            ["s[0].counters: Too many: 33: must have at most 32 items"]
        );
        let bad = errors(json!([{"name": "A", "counters": {"B": {}}}]));
        assert!(bad[0].starts_with("s[0].name: Invalid value: \"A\": a lowercase RFC 1123 label"));
        assert!(bad[1].starts_with("s[0].counters: Invalid value: \"B\": a lowercase RFC 1123 label"));
        let nine: Vec<Value> = (0..9).map(|_| set.clone()).collect();
        assert_eq!(errors(json!(nine)), ["s: Too many: 9: must have at most 8 items"]);
    }

    #[test]
    fn devices_consume_counters_of_named_sets() {
        let consumption = |name: &str| json!({"counterSet": name, "counters": {"memory": {"value": "1Gi"}}});
        let errors =
            |of: Value| messages(validate_consumptions(of.as_array().unwrap(), &FieldPath::root("c")));
        assert!(errors(json!([consumption("a"), consumption("b")])).is_empty());
        assert_eq!(
            errors(json!([consumption("a"), consumption("b"), consumption("c")])),
            ["c: Too many: 3: must have at most 2 items"]
        );
        assert_eq!(errors(json!([{}])), ["c[0].counterSet: Required value", "c[0].counters: Required value"]);
    }
}
