//! Faults of AWS and of the controllers themselves: one resource, none leaked.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

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

/// Kills the controllers after each call in turn, starts them again, and counts.
#[tokio::test(flavor = "multi_thread")]
async fn controller_killed_after_any_call_neither_leaks_nor_doubles() {
    let proxy = Proxy::start(&moto().address).await;
    let mut harness = Harness::start(settings(&proxy.address)).await;
    for step in 1..=8 {
        let name = format!("killed-{step}");
        let (api, integration, route) = (
            at("apigatewayv2", "apis", "default", &name),
            at("apigatewayv2", "integrations", "default", &name),
            at("apigatewayv2", "routes", "default", &name),
        );
        let fired = arm(&proxy, &harness, step);
        harness.apply(&api, "API", json!({}), json!({"name": name, "protocolType": "HTTP"})).await;
        let of_api = json!({"from": {"name": name}});
        let spec = json!({"apiRef": of_api, "integrationType": "HTTP_PROXY", "integrationMethod": "GET",
            "integrationURI": "https://example.org", "payloadFormatVersion": "1.0"});
        harness.apply(&integration, "Integration", json!({}), spec).await;
        let spec = json!({"apiRef": of_api, "routeKey": "GET /", "targetRef": of_api});
        harness.apply(&route, "Route", json!({}), spec).await;
        // The kill happens somewhere on the way; another controller goes on.
        let all = [&api, &integration, &route];
        harness
            .until("the controllers are killed, or done", async || {
                let mut done = true;
                for place in all {
                    done &= harness.get(place).await.is_some_and(|object| orlop_aws::is_synced(&object));
                }
                (done || fired.load(Ordering::SeqCst)).then_some(())
            })
            .await;
        harness.launch();
        for place in [&api, &integration, &route] {
            harness.synced(place).await;
        }
        let found = apis(&name).await;
        assert_eq!(found.len(), 1, "killed after call {step}");
        let id = found[0]["apiId"].as_str().expect("an id").to_owned();
        for part in ["integrations", "routes"] {
            let (_, answer) = moto().rest("apigateway", "GET", &format!("/v2/apis/{id}/{part}"), None).await;
            assert_eq!(answer["items"].as_array().map(Vec::len), Some(1), "{part}, killed after call {step}");
        }
        let fired = arm(&proxy, &harness, step.min(3));
        for place in [&route, &integration, &api] {
            harness.delete(place).await;
        }
        harness
            .until("the controllers are killed, or done", async || {
                (fired.load(Ordering::SeqCst) || harness.get(&api).await.is_none()).then_some(())
            })
            .await;
        harness.launch();
        for place in [&route, &integration, &api] {
            harness.gone(place).await;
        }
        assert_eq!(apis(&name).await.len(), 0, "killed after call {step} of the deletion");
    }
}

/// Kills the controllers after a number of further calls.
pub(crate) fn arm(proxy: &Proxy, harness: &Harness, calls: usize) -> Arc<AtomicBool> {
    let fired = Arc::new(AtomicBool::new(false));
    let (last, handle, fire) = (proxy.calls() + calls, harness.abort_handle(), fired.clone());
    proxy.after_call(move |number, _| {
        if number == last {
            handle.abort();
            fire.store(true, Ordering::SeqCst);
        }
    });
    fired
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
