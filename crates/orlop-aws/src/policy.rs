//! IAM policy documents, compared by meaning.
//!
//! AWS returns a document in its own words: another order of statements, a string for a list of one, the root ARN for
//! an account. Two documents are the same if their canonical forms are.

use serde_json::{Map, Value, json};

/// Compares two documents by meaning. Texts that are no JSON compare as texts.
pub(crate) fn same(one: &str, other: &str) -> bool {
    match (serde_json::from_str(one), serde_json::from_str(other)) {
        (Ok(one), Ok(other)) => canonical(&one) == canonical(&other),
        _ => one.trim() == other.trim(),
    }
}

/// Returns the canonical form of a document.
fn canonical(document: &Value) -> Value {
    let mut out = Map::new();
    for (key, value) in document.as_object().into_iter().flatten() {
        match key.as_str() {
            "Statement" => {
                let mut statements: Vec<Value> = list(value).iter().map(canonical_statement).collect();
                statements.sort_by_key(Value::to_string);
                out.insert(key.clone(), Value::Array(statements));
            }
            _ => {
                out.insert(key.clone(), value.clone());
            }
        }
    }
    Value::Object(out)
}

/// Returns the canonical form of a statement.
pub(crate) fn canonical_statement(statement: &Value) -> Value {
    let mut out = Map::new();
    for (key, value) in statement.as_object().into_iter().flatten() {
        let value = match key.as_str() {
            "Action" | "NotAction" => sorted(
                list(value).iter().map(|action| json!(action.as_str().unwrap_or_default().to_lowercase())),
            ),
            "Resource" | "NotResource" => sorted(list(value).into_iter()),
            "Principal" | "NotPrincipal" => canonical_principal(value),
            "Condition" => canonical_condition(value),
            _ => value.clone(),
        };
        out.insert(key.clone(), value);
    }
    Value::Object(out)
}

fn canonical_principal(principal: &Value) -> Value {
    let Some(kinds) = principal.as_object() else {
        return json!({"AWS": [principal]});
    };
    let kinds = kinds.iter().map(|(kind, values)| {
        let values = list(values).into_iter().map(|value| match value.as_str() {
            // `arn:aws:iam::123456789012:root` is the account.
            Some(arn) if kind == "AWS" && arn.ends_with(":root") => {
                json!(arn.split(':').nth(4).unwrap_or(arn))
            }
            _ => value,
        });
        (kind.clone(), sorted(values))
    });
    Value::Object(kinds.collect())
}

fn canonical_condition(condition: &Value) -> Value {
    let operators = condition.as_object().into_iter().flatten().map(|(operator, keys)| {
        let keys = keys.as_object().into_iter().flatten();
        // Keys are case-insensitive, values are lists of strings.
        let keys = keys.map(|(key, values)| {
            let values = list(values).into_iter().map(|value| match value {
                Value::String(_) => value,
                other => json!(other.to_string()),
            });
            (key.to_lowercase(), sorted(values))
        });
        (operator.clone(), Value::Object(keys.collect()))
    });
    Value::Object(operators.collect())
}

fn list(value: &Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items.clone(),
        other => vec![other.clone()],
    }
}

fn sorted(values: impl Iterator<Item = Value>) -> Value {
    let mut values: Vec<Value> = values.collect();
    values.sort_by_key(Value::to_string);
    values.dedup();
    Value::Array(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatting_order_and_lists_of_one_are_no_difference() {
        let one = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:GetObject","Resource":["b","a"]},
            {"Effect":"Deny","Action":["S3:Put"],"Resource":"x","Principal":{"AWS":"arn:aws:iam::1:root"}}]}"#;
        let other = r#"{"Statement":[{"Effect":"Deny","Action":"s3:put","Resource":["x"],"Principal":{"AWS":["1"]}},
            {"Resource":["a","b"],"Effect":"Allow","Action":["s3:GetObject"]}],"Version":"2012-10-17"}"#;
        assert!(same(one, other));
    }

    #[test]
    fn another_effect_principal_or_condition_is_a_difference() {
        let with = |statement: &str| format!(r#"{{"Statement":[{statement}]}}"#);
        let base = with(r#"{"Effect":"Allow","Principal":"*"}"#);
        assert!(same(&base, &with(r#"{"Effect":"Allow","Principal":{"AWS":"*"}}"#)));
        assert!(!same(&base, &with(r#"{"Effect":"Deny","Principal":"*"}"#)));
        assert!(!same(&base, &with(r#"{"Effect":"Allow","Principal":{"Service":"lambda.amazonaws.com"}}"#)));
        assert!(!same(&base, &with(r#"{"Effect":"Allow","Principal":"*","Condition":{"Bool":{"a":true}}}"#)));
    }
}
