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

#[tokio::test]
async fn pod_that_becomes_ready_meanwhile_needs_its_budget() {
    let (chain, _store) = server().await;
    let numbers = json!({"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1,
        "desiredHealthy": 1, "expectedPods": 2});
    budget(&chain, "web", &numbers).await;
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    for round in 0..60 {
        let name = format!("p{round}");
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0}});
        create(&chain, PODS, &pod).await;
        if round % 2 == 0 {
            let unready = json!({"status": {"phase": "Running"}});
            call(&chain, "PATCH", &format!("{PODS}/{name}/status"), Some(&unready)).await;
        }
        let path = format!("{PODS}/{name}/status");
        let becomes_ready = async {
            for _ in 0..round / 3 {
                tokio::task::yield_now().await;
            }
            call(&chain, "PATCH", &path, Some(&ready)).await.0
        };
        let (evicted, changed) = tokio::join!(evict(&chain, &name, ""), becomes_ready);
        match (evicted.0, changed) {
            (201, 404) => {}
            (429, 200) => assert_eq!(get(&chain, &format!("{PODS}/{name}")).await.0, 200),
            both => panic!("{round}: {both:?} {}", evicted.1),
        }
    }
}

#[tokio::test]
async fn resource_version_of_the_caller_is_not_replaced() {
    let (chain, _store) = server().await;
    create(
        &chain,
        PODS,
        &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}}),
    )
    .await;
    let evict = async |options: Value| {
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"},
            "deleteOptions": options});
        call(&chain, "POST", &format!("{PODS}/a/eviction"), Some(&eviction)).await
    };
    assert_eq!(evict(json!({"preconditions": {"resourceVersion": "1"}})).await.0, 409);
    let (code, refused) = evict(json!({"ignoreStoreReadErrorWithClusterBreakingPotential": true})).await;
    let field = "deleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential";
    assert_eq!((code, &refused["details"]["causes"][0]["field"]), (422, &json!(field)), "{refused}");
    assert_eq!(get(&chain, &format!("{PODS}/a")).await.0, 200);
}

#[tokio::test]
async fn unusable_budget_is_named_as_the_cause() {
    let (chain, _store) = server().await;
    pod(&chain, "a", true).await;
    budget(&chain, "web", &json!({"observedGeneration": 1, "disruptionsAllowed": 1})).await;
    let many: Value = (0..2001)
        .map(|at| (format!("p{at}"), json!("2026-01-01T00:00:00Z")))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let change = json!({"status": {"disruptedPods": many}});
    assert_eq!(call(&chain, "PATCH", &format!("{BUDGETS}/web/status"), Some(&change)).await.0, 200);
    let (code, refused) = evict(&chain, "a", "").await;
    let why = "The disruption budget web does not allow evicting pods currently: too many pending evictions not confirmed \
               by PDB controller";
    assert_eq!((code, &refused["details"]["causes"][0]["message"]), (403, &json!(why)), "{refused}");
}
