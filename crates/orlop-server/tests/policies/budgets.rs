//! Policies that burn their budget: an error as Kubernetes gives it, never a bypass, never a stuck server.

use std::time::Duration;

use serde_json::json;

use super::{mutate, server, try_create, validate};

/// An expression that iterates some 10^`depth` times. Depth 5 exceeds the limit of an expression.
fn burn(depth: usize) -> String {
    let digits = "[0,1,2,3,4,5,6,7,8,9]";
    let head: String = (0..depth).map(|level| format!("{digits}.all(v{level}, ")).collect();
    format!("{head}v0 >= object.data.size() - 10{}", ")".repeat(depth))
}

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

#[tokio::test]
async fn expression_beyond_its_limit_fails() {
    let expression = burn(6);
    for (failure_policy, code) in [("Fail", 422), ("Ignore", 201)] {
        let chain = server().await;
        let spec = json!({"failurePolicy": failure_policy, "validations": [{"expression": expression}]});
        validate(&chain, spec, json!({})).await;
        let created = tokio::time::timeout(Duration::from_secs(60), try_create(&chain, "m", json!({}))).await;
        let (found, message) = created.unwrap();
        assert_eq!(found, code);
        if code == 422 {
            let error = format!(
                "expression '{expression}' resulted in error: operation cancelled: actual cost limit exceeded"
            );
            assert!(message.ends_with(&error), "{message}");
        }
    }
}

#[tokio::test]
async fn policy_beyond_its_budget_fails_as_a_whole() {
    // Each is within the limit of an expression, and all of them are not within that of a policy.
    let validations: Vec<_> = (0..40).map(|_| json!({"expression": burn(5), "message": "burnt"})).collect();
    for (failure_policy, code) in [("Fail", 422), ("Ignore", 201)] {
        let chain = server().await;
        validate(&chain, json!({"failurePolicy": failure_policy, "validations": validations}), json!({}))
            .await;
        let created = tokio::time::timeout(Duration::from_secs(60), try_create(&chain, "m", json!({}))).await;
        let (found, message) = created.unwrap();
        assert_eq!(found, code, "{message}");
        assert!(code == 201 || message.ends_with(OUT_OF_BUDGET), "{message}");
    }
}

#[tokio::test]
async fn variables_and_conditions_count() {
    let chain = server().await;
    let variables: Vec<_> =
        (0..30).map(|index| json!({"name": format!("v{index}"), "expression": burn(6)})).collect();
    let all: Vec<String> = (0..30).map(|index| format!("variables.v{index}")).collect();
    let spec = json!({"variables": variables, "validations": [{"expression": format!("{} || true", all.join(" || "))}]});
    validate(&chain, spec, json!({})).await;
    let created = tokio::time::timeout(Duration::from_secs(60), try_create(&chain, "m", json!({}))).await;
    let (code, message) = created.unwrap();
    assert_eq!(code, 422);
    assert!(message.ends_with(OUT_OF_BUDGET), "{message}");
    let chain = server().await;
    let conditions: Vec<_> =
        (0..20).map(|index| json!({"name": format!("c{index}"), "expression": burn(5)})).collect();
    validate(
        &chain,
        json!({"matchConditions": conditions, "validations": [{"expression": "true"}]}),
        json!({}),
    )
    .await;
    let created = tokio::time::timeout(Duration::from_secs(60), try_create(&chain, "m", json!({}))).await;
    let (code, message) = created.unwrap();
    assert_eq!(code, 422);
    assert!(message.ends_with(OUT_OF_BUDGET), "{message}");
}

#[tokio::test]
async fn message_beyond_the_budget_denies() {
    let chain = server().await;
    let validations: Vec<_> = (0..40)
        .map(|_| json!({"expression": "true", "messageExpression": format!("{} ? 'a' : 'b'", burn(5))}))
        .collect();
    validate(&chain, json!({"validations": validations}), json!({})).await;
    let created = tokio::time::timeout(Duration::from_secs(60), try_create(&chain, "m", json!({}))).await;
    let (code, message) = created.unwrap();
    assert_eq!(code, 422);
    assert!(message.ends_with(&format!("failed messageExpression: {OUT_OF_BUDGET}")), "{message}");
}

#[tokio::test]
async fn mutation_beyond_its_limit_denies() {
    let chain = server().await;
    let expression =
        format!("Object{{metadata: Object.metadata{{labels: {{'a': {} ? 'x' : 'y'}}}}}}", burn(6));
    let mutation =
        json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}});
    mutate(&chain, "burner", json!({"mutations": [mutation]}), json!({})).await;
    let created = tokio::time::timeout(Duration::from_secs(60), try_create(&chain, "m", json!({}))).await;
    let (code, message) = created.unwrap();
    assert_eq!(code, 403);
    assert!(
        message.starts_with("policy 'burner' with binding 'burner' denied request: expression "),
        "{message}"
    );
    assert!(message.ends_with("operation cancelled: actual cost limit exceeded"), "{message}");
}
