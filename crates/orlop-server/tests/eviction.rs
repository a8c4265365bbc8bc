//! Evictions and PodDisruptionBudgets.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use orlop_server::chain::Chain;
use serde_json::{Value, json};
use support::{call, create, get, server};

const PODS: &str = "/api/v1/namespaces/default/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

/// Returns a running pod, ready or not.
async fn pod(chain: &Chain, name: &str, ready: bool) {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0}});
    create(chain, PODS, &pod).await;
    let ready = if ready { "True" } else { "False" };
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}});
    let (code, changed) = call(chain, "PATCH", &format!("{PODS}/{name}/status"), Some(&status)).await;
    assert_eq!(code, 200, "{changed}");
}

async fn budget(chain: &Chain, name: &str, status: &Value) {
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
    create(chain, BUDGETS, &budget).await;
    let (code, changed) =
        call(chain, "PATCH", &format!("{BUDGETS}/{name}/status"), Some(&json!({"status": status}))).await;
    assert_eq!(code, 200, "{changed}");
}

async fn evict(chain: &Chain, name: &str, query: &str) -> (u16, Value) {
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    call(chain, "POST", &format!("{PODS}/{name}/eviction{query}"), Some(&eviction)).await
}

#[tokio::test]
async fn evictions_stop_at_disruptions_allowed() {
    let (chain, _store) = server().await;
    for name in ["a", "b", "c"] {
        pod(&chain, name, true).await;
    }
    let status = json!({"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 3,
        "desiredHealthy": 2, "expectedPods": 3});
    budget(&chain, "web", &status).await;
    assert_eq!(evict(&chain, "a", "?dryRun=All").await.0, 201);
    assert_eq!(get(&chain, &format!("{PODS}/a")).await.0, 200);
    assert_eq!(evict(&chain, "a", "").await.0, 201);
    assert_eq!(get(&chain, &format!("{PODS}/a")).await.0, 404);
    let (_, budget) = get(&chain, &format!("{BUDGETS}/web")).await;
    assert_eq!(budget["status"]["disruptionsAllowed"], 0);
    assert!(budget["status"]["disruptedPods"]["a"].is_string(), "{budget}");
    assert_eq!(budget["status"]["conditions"][0]["reason"], "InsufficientPods");

    let numbers = json!({"status": {"currentHealthy": 2}});
    call(&chain, "PATCH", &format!("{BUDGETS}/web/status"), Some(&numbers)).await;
    let (code, refused) = evict(&chain, "b", "").await;
    assert_eq!((code, refused["reason"].as_str()), (429, Some("TooManyRequests")));
    assert_eq!(refused["message"], "Cannot evict pod as it would violate the pod's disruption budget.");
    let cause = json!([{"reason": "DisruptionBudget",
        "message": "The disruption budget web needs 2 healthy pods and has 2 currently"}]);
    assert_eq!(refused["details"]["causes"], cause);
    assert_eq!(get(&chain, &format!("{PODS}/b")).await.0, 200);
}

#[tokio::test]
async fn unobserved_budget_returns_429_with_retry_after() {
    let (chain, _store) = server().await;
    pod(&chain, "a", true).await;
    budget(&chain, "web", &json!({"disruptionsAllowed": 5})).await;
    let (code, refused) = evict(&chain, "a", "").await;
    assert_eq!((code, refused["details"]["retryAfterSeconds"].as_i64()), (429, Some(10)), "{refused}");
    let why = "The disruption budget web is still being processed by the server.";
    assert_eq!(refused["details"]["causes"][0]["message"], why);
}

#[tokio::test]
async fn unhealthy_pod_is_evicted_if_enough_are_healthy() {
    let (chain, _store) = server().await;
    pod(&chain, "sick", false).await;
    let status = json!({"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 2,
        "desiredHealthy": 2, "expectedPods": 3});
    budget(&chain, "web", &status).await;
    assert_eq!(evict(&chain, "sick", "").await.0, 201);
}

#[tokio::test]
async fn eviction_with_two_budgets_fails_and_with_none_succeeds() {
    let (chain, _store) = server().await;
    pod(&chain, "a", true).await;
    for name in ["one", "two"] {
        budget(&chain, name, &json!({"observedGeneration": 1, "disruptionsAllowed": 1})).await;
    }
    let (code, refused) = evict(&chain, "a", "").await;
    let why =
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    assert_eq!((code, refused["message"].as_str()), (500, Some(why)));
    for name in ["one", "two"] {
        call(&chain, "DELETE", &format!("{BUDGETS}/{name}"), None).await;
    }
    assert_eq!(evict(&chain, "a", "").await.0, 201);
    assert_eq!(evict(&chain, "a", "").await.0, 404);
}
