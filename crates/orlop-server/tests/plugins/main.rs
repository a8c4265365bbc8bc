//! Built-in admission plugins through the whole server.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../support/mod.rs"]
mod support;

use orlop_server::{
    admission::{Settings, chain},
    auth::issuer::Issuer,
    chain::Chain,
    cluster::Cluster,
    registry::Kinds,
};
use orlop_store::{Config, Endpoint, Store};
use serde_json::{Value, json};
use support::{call, get, started};

const PODS: &str = "/api/v1/namespaces/default/pods";
const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";

/// Starts a server with the default plugins, and the default service account that a controller would make.
async fn server() -> Chain {
    let store = Store::open(Config::new(Endpoint::Memory)).await.unwrap();
    let cluster = Cluster::new(store, Kinds::builtin(), Issuer::generate().unwrap());
    let chain =
        started(cluster.with_admission_plugins(&chain::defaults(), Settings::default()).unwrap()).await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    assert_eq!(
        call(&chain, "POST", "/api/v1/namespaces/default/serviceaccounts", Some(&account)).await.0,
        201
    );
    chain
}

fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    pod
}

#[tokio::test]
async fn pod_gets_account_token_priority_and_tolerations() {
    let chain = server().await;
    let (code, created) = call(&chain, "POST", PODS, Some(&pod("p", json!({})))).await;
    assert_eq!(code, 201, "{created}");
    let spec = &created["spec"];
    assert_eq!(spec["serviceAccountName"], "default");
    assert_eq!(spec["containers"][0]["volumeMounts"][0]["name"], spec["volumes"][0]["name"]);
    assert_eq!((&spec["priority"], &spec["preemptionPolicy"]), (&json!(0), &json!("PreemptLowerPriority")));
    assert_eq!(spec["tolerations"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn class_is_in_force_when_its_write_is_answered() {
    let chain = server().await;
    for round in 0..20 {
        let name = format!("class-{round}");
        let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
            "value": round});
        assert_eq!(call(&chain, "POST", CLASSES, Some(&class)).await.0, 201);
        let wanted = pod(&format!("p{round}"), json!({"priorityClassName": name}));
        let (code, created) = call(&chain, "POST", PODS, Some(&wanted)).await;
        assert_eq!((code, &created["spec"]["priority"]), (201, &json!(round)), "{created}");
        assert_eq!(call(&chain, "DELETE", &format!("{CLASSES}/{name}"), None).await.0, 200);
        let (code, refused) =
            call(&chain, "POST", PODS, Some(&pod("q", json!({"priorityClassName": name})))).await;
        assert_eq!(code, 403);
        let expected = format!("pods \"q\" is forbidden: no PriorityClass with name {name} was found");
        assert_eq!(refused["message"], json!(expected));
    }
}

#[tokio::test]
async fn missing_namespace_is_reported_before_what_is_missing_in_it() {
    let chain = server().await;
    let (code, refused) =
        call(&chain, "POST", "/api/v1/namespaces/nowhere/pods", Some(&pod("p", json!({})))).await;
    assert_eq!((code, &refused["message"]), (404, &json!("namespaces \"nowhere\" not found")));
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gone"}});
    assert_eq!(call(&chain, "POST", "/api/v1/namespaces", Some(&namespace)).await.0, 201);
    let maps = "/api/v1/namespaces/gone/configmaps";
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
    assert_eq!(call(&chain, "POST", maps, Some(&map)).await.0, 201);
    assert_eq!(call(&chain, "DELETE", "/api/v1/namespaces/gone", None).await.0, 200);
    let (code, refused) =
        call(&chain, "POST", "/api/v1/namespaces/gone/pods", Some(&pod("p", json!({})))).await;
    assert_eq!(code, 403);
    let message = "pods \"p\" is forbidden: unable to create new content in namespace gone because it is being terminated";
    assert_eq!(refused["message"], json!(message));
    assert_eq!(get(&chain, "/api/v1/namespaces/gone/pods/p").await.0, 404);
}
