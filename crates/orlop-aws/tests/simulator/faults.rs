//! Faults of AWS and of the controllers themselves: one resource, none leaked.

use serde_json::{Value, json};

use crate::{
    harness::{Harness, at, condition, has, settings},
    kinds::TRUST,
    proxy::{Fault, Proxy},
    simulators::moto,
};

/// Names of the APIs that a simulator has.
async fn apis(name: &str) -> Vec<Value> {
    let (_, answer) = moto().rest("apigateway", "GET", "/v2/apis", None).await;
    let items = answer["items"].as_array().cloned().unwrap_or_default();
    items.into_iter().filter(|api| api["name"] == name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_answer_of_a_create_makes_one_resource() {
    let proxy = Proxy::start(&moto().address).await;
    let harness = Harness::start(settings(&proxy.address)).await;
    let api = at("apigatewayv2", "apis", "default", "lost");
    proxy.inject("POST /v2/apis", Fault::CutAfterSend, 1);
    harness.apply(&api, "API", json!({}), json!({"name": "lost-api", "protocolType": "HTTP"})).await;
    harness.synced(&api).await;
    assert_eq!(apis("lost-api").await.len(), 1);
    harness.delete(&api).await;
    harness.gone(&api).await;
    assert_eq!(apis("lost-api").await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn throttling_server_errors_and_stale_reads_converge() {
    let proxy = Proxy::start(&moto().address).await;
    let harness = Harness::start(settings(&proxy.address)).await;
    let faults = [
        Fault::Answer(400, "Throttling"),
        Fault::Answer(503, "ServiceUnavailable"),
        Fault::CutBefore,
        Fault::CutAfterSend,
        Fault::Delay(std::time::Duration::from_millis(300)),
    ];
    for (number, fault) in faults.into_iter().enumerate() {
        let name = format!("fault-{number}");
        let role = at("iam", "roles", "default", &name);
        proxy.inject("CreateRole", fault, 2);
        // The first read after the create is stale.
        proxy.inject("GetRole", Fault::Answer(404, "NoSuchEntity"), 2);
        harness
            .apply(&role, "Role", json!({}), json!({"name": name, "assumeRolePolicyDocument": TRUST}))
            .await;
        let synced = harness.synced(&role).await;
        assert!(condition(&synced, "ACK.Recoverable").is_none());
        harness.delete(&role).await;
        harness.gone(&role).await;
        proxy.clear();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_call_is_named_and_recovers_when_it_is_granted() {
    let proxy = Proxy::start(&moto().address).await;
    let harness = Harness::start(settings(&proxy.address)).await;
    let role = at("iam", "roles", "default", "denied");
    proxy.inject("CreateRole", Fault::Answer(403, "AccessDenied"), usize::MAX);
    harness
        .apply(&role, "Role", json!({}), json!({"name": "denied", "assumeRolePolicyDocument": TRUST}))
        .await;
    let denied = harness.eventually(&role, |object| has(object, "ACK.Recoverable", "True")).await;
    let reason = condition(&denied, "ACK.ResourceSynced").expect("synced")["reason"].clone();
    assert_eq!(
        reason,
        "operation error IAM: CreateRole, https response error StatusCode: 403, AccessDenied: injected"
    );
    proxy.clear();
    harness.synced(&role).await;
    harness.delete(&role).await;
    harness.gone(&role).await;
}
