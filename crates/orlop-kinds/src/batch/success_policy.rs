//! Validation of successPolicy, which lets an indexed job succeed early.

use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::Value;

use crate::{
    accessors::{integer, list, present},
    validation,
};

/// Validates successPolicy.
pub(crate) fn validate(spec: &Value, policy: &Value, path: &FieldPath) -> Vec<FieldError> {
    let (rules, path) = (list(policy, "/rules"), path.child("rules"));
    if rules.is_empty() {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        return vec![FieldError::required(&path, detail)];
    }
    let completions = integer(spec, "/completions");
    let each = |(index, given): (usize, &Value)| validate_rule(given, completions, &path.index(index));
    rules.iter().enumerate().flat_map(each).collect()
}

fn validate_rule(rule: &Value, completions: i64, path: &FieldPath) -> Vec<FieldError> {
    let count = present(rule, "/succeededCount").and_then(Value::as_i64);
    let indexes = present(rule, "/succeededIndexes").and_then(Value::as_str);
    let mut errors = Vec::new();
    if count.is_none() && indexes.is_none() {
        let detail = "at least one of succeededCount or succeededIndexes must be specified";
        errors.push(FieldError::required(path, detail));
    }
    let named = indexes.map(|indexes| count_indexes(indexes, completions));
    if let (Some(indexes), Some(Err(why))) = (indexes, &named) {
        let detail = format!("error parsing succeededIndexes: {why}");
        errors.push(FieldError::invalid(&path.child("succeededIndexes"), indexes, detail));
    }
    let Some(count) = count else { return errors };
    errors.extend(validation::validate_non_negative(rule, "succeededCount", path));
    let mut at_most = |most: i64, of: &str| {
        if count > most {
            let detail = format!("must be less than or equal to {most} ({of})");
            errors.push(FieldError::invalid(&path.child("succeededCount"), count, detail));
        }
    };
    at_most(completions, "the number of specified completions");
    if let Some(Ok(named)) = named {
        at_most(named, "the number of indexes in the specified succeededIndexes field");
    }
    errors
}

/// Counts the indexes of a list such as `0,2-4`: ascending, and below `completions`.
fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    let (mut total, mut last) = (0, None);
    for interval in text.split(',').filter(|_| !text.is_empty()) {
        let limits: Vec<&str> = interval.split('-').collect();
        let read = |limit: &str| match limit.parse::<i64>() {
            Ok(index) if index >= completions => Err(format!("too large index: {limit:?}")),
            Ok(index) => Ok(index),
            Err(_) => Err(format!("cannot convert string to integer for index: {limit:?}")),
        };
        let (from, to) = match limits.as_slice() {
            [one] => read(one).map(|index| (index, index))?,
            [from, to] => (read(from)?, read(to)?),
            _ => {
                return Err(format!(
                    "the fragment {interval:?} violates the requirement that an index interval can have at most two \
                     parts separated by '-'"
                ));
            }
        };
        let disorder = |previous: i64, current: i64| {
            Err(format!("non-increasing order, previous: {previous}, current: {current}"))
        };
        if limits.len() > 1 && from >= to {
            return disorder(from, to);
        }
        if let Some(last) = last.filter(|last| *last >= from) {
            return disorder(last, from);
        }
        total += to - from + 1;
        last = Some(to);
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::tests::messages;

    #[test]
    fn success_policy_indexes_must_exist() {
        let validation_errors = |rules: Value| {
            messages(validate(&json!({"completions": 5}), &json!({"rules": rules}), &FieldPath::root("p")))
        };
        assert!(validation_errors(json!([{"succeededIndexes": "0,2-4", "succeededCount": 4}])).is_empty());
        let parsing = "p.rules[0].succeededIndexes: Invalid value";
        for (rules, expected) in [
            (
                json!([]),
                "p.rules: Required value: at least one rules must be specified when the successPolicy is specified"
                    .to_owned(),
            ),
            (
                json!([{}]),
                "p.rules[0]: Required value: at least one of succeededCount or succeededIndexes must be specified"
                    .to_owned(),
            ),
            (
                json!([{"succeededIndexes": "x"}]),
                format!(
                    "{parsing}: \"x\": error parsing succeededIndexes: cannot convert string to integer for index: \"x\""
                ),
            ),
            (
                json!([{"succeededIndexes": "3,1"}]),
                format!(
                    "{parsing}: \"3,1\": error parsing succeededIndexes: non-increasing order, previous: 3, current: 1"
                ),
            ),
            (
                json!([{"succeededCount": 9}]),
                "p.rules[0].succeededCount: Invalid value: 9: must be less than or equal to 5 (the number of \
                 specified completions)"
                    .to_owned(),
            ),
            (
                json!([{"succeededCount": 3, "succeededIndexes": "0-1"}]),
                "p.rules[0].succeededCount: Invalid value: 3: must be less than or equal to 2 (the number of \
                 indexes in the specified succeededIndexes field)"
                    .to_owned(),
            ),
        ] {
            assert_eq!(validation_errors(rules), [expected]);
        }
    }
}
