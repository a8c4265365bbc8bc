//! Built-in admission plugins through the whole server.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod quota;
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
    let chain = server_with(store, &chain::defaults()).await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    support::create(&chain, "/api/v1/namespaces/default/serviceaccounts", &account).await;
    chain
}

/// Starts a server with plugins on a store, which other servers may use too.
async fn server_with(store: Store, plugins: &[&'static str]) -> Chain {
    let cluster = Cluster::new(store, Kinds::builtin(), Issuer::generate().unwrap());
    started(cluster.with_admission_plugins(plugins, Settings::default()).unwrap()).await
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

#[tokio::test]
async fn flags_turn_off_what_the_server_itself_does() {
    let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let store = || async { Store::open(Config::new(Endpoint::Memory)).await.unwrap() };
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
    let maps = "/api/v1/namespaces/nowhere/configmaps";
    let without = chain::select(&[], &names(&["NamespaceLifecycle"])).unwrap();
    let chain = server_with(store().await, &without).await;
    assert_eq!(call(&chain, "POST", maps, Some(&map)).await.0, 201);
    assert_eq!(get(&chain, "/api/v1/namespaces/nowhere").await.0, 404);
    let provisioning = chain::select(&names(&["NamespaceAutoProvision"]), &[]).unwrap();
    let chain = server_with(store().await, &provisioning).await;
    assert_eq!(call(&chain, "POST", maps, Some(&map)).await.0, 201);
    let (code, namespace) = get(&chain, "/api/v1/namespaces/nowhere").await;
    assert_eq!((code, &namespace["status"]["phase"]), (200, &json!("Active")));
}

#[tokio::test]
async fn pod_security_is_enforced_and_warned_of() {
    let chain = server().await;
    let label = |level: &str| json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level}}});
    assert_eq!(call(&chain, "PATCH", "/api/v1/namespaces/default", Some(&label("baseline"))).await.0, 200);
    let bad = pod("p", json!({"hostNetwork": true}));
    let (code, refused) = call(&chain, "POST", PODS, Some(&bad)).await;
    assert_eq!(code, 403);
    assert_eq!(
        refused["message"],
        "pods \"p\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)"
    );
    let (code, refused) = call(&chain, "PATCH", "/api/v1/namespaces/default", Some(&label("lax"))).await;
    assert_eq!((code, &refused["reason"]), (422, &json!("Invalid")));
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": bad["spec"]}}});
    let headers = [("content-type", "application/json")];
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let response = support::ask(&chain, "POST", path, &headers, deployment.to_string()).await;
    let (code, headers, _) = support::whole(response).await;
    let warning = headers["warning"].to_str().unwrap();
    assert_eq!(code, 201);
    assert!(
        warning.contains("would violate PodSecurity \\\"baseline:latest\\\": host namespaces"),
        "{warning}"
    );
}

#[tokio::test]
async fn limit_range_gives_defaults_and_holds_limits() {
    let chain = server().await;
    let range = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": [
        {"type": "Container", "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "100m"}, "max": {"cpu": "1"}}]}});
    assert_eq!(call(&chain, "POST", "/api/v1/namespaces/default/limitranges", Some(&range)).await.0, 201);
    let (code, created) = call(&chain, "POST", PODS, Some(&pod("p", json!({})))).await;
    assert_eq!(code, 201);
    let resources = &created["spec"]["containers"][0]["resources"];
    assert_eq!(*resources, json!({"limits": {"cpu": "500m"}, "requests": {"cpu": "100m"}}));
    let large = json!({"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "2"}}}]});
    let (code, refused) = call(&chain, "POST", PODS, Some(&pod("q", large))).await;
    assert_eq!(code, 403);
    assert_eq!(
        refused["message"],
        "pods \"q\" is forbidden: maximum cpu usage per Container is 1, but limit is 2"
    );
}

#[tokio::test]
async fn new_node_is_tainted_until_it_is_ready() {
    let chain = server().await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    let (code, created) = call(&chain, "POST", "/api/v1/nodes", Some(&node)).await;
    assert_eq!((code, &created["spec"]["taints"][0]["key"]), (201, &json!("node.kubernetes.io/not-ready")));
}
