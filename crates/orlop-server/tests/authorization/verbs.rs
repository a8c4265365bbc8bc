//! Requests that need another verb beside their own.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use orlop_server::{User, chain::Chain};
use serde_json::{Value, json};

use crate::{
    binding, call_as, in_namespace, role,
    support::{call, config_map, create, get, server, whole},
    user,
};

/// Grants `ann` verbs on resources in `default`.
async fn grant(chain: &Chain, name: &str, verbs: &[&str], group: &str, resources: &[&str]) {
    let rules = json!([{"verbs": verbs, "apiGroups": [group], "resources": resources}]);
    create(chain, &in_namespace("default", "roles"), &role("Role", name, rules)).await;
    let bound = binding("RoleBinding", name, &format!("Role/{name}"), &["User:ann"]);
    create(chain, &in_namespace("default", "rolebindings"), &bound).await;
}

async fn apply_as(chain: &Chain, user: &User, path: &str, object: &Value) -> (u16, Value) {
    let request = Request::builder().method("PATCH").uri(format!("{path}?fieldManager=x"));
    let request = request.header("content-type", "application/apply-patch+yaml");
    let request = request.body(Full::new(Bytes::from(object.to_string()))).unwrap();
    let (code, _, body) = whole(chain.answer(request, Some(user)).await).await;
    (code, serde_json::from_slice(&body).unwrap())
}

#[tokio::test]
async fn apply_that_creates_needs_create() {
    let (chain, _store) = server().await;
    grant(&chain, "patcher", &["get", "patch"], "", &["configmaps"]).await;
    let (ann, maps) = (user("ann"), "/api/v1/namespaces/default/configmaps");
    let map = |name: &str| config_map(name, &json!({"a": "b"}));
    create(&chain, maps, &map("there")).await;
    assert_eq!(apply_as(&chain, &ann, &format!("{maps}/there"), &map("there")).await.0, 200);
    let (code, status) = apply_as(&chain, &ann, &format!("{maps}/missing"), &map("missing")).await;
    assert_eq!(
        (code, status["message"].as_str().unwrap()),
        (
            403,
            "configmaps \"missing\" is forbidden: User \"ann\" cannot create resource \"configmaps\" in API group \"\" \
             in the namespace \"default\""
        )
    );
    assert_eq!(get(&chain, &format!("{maps}/missing")).await.0, 404);
    grant(&chain, "creator", &["create"], "", &["configmaps"]).await;
    assert_eq!(apply_as(&chain, &ann, &format!("{maps}/missing"), &map("missing")).await.0, 201);
}

#[tokio::test]
async fn update_that_creates_needs_create() {
    let (chain, _store) = server().await;
    grant(&chain, "updater", &["get", "update"], "coordination.k8s.io", &["leases"]).await;
    let (ann, leases) = (user("ann"), "/apis/coordination.k8s.io/v1/namespaces/default/leases");
    let lease = |name: &str| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}});
    let mut there = lease("there");
    there["metadata"]["resourceVersion"] = create(&chain, leases, &there).await.into();
    assert_eq!(call_as(&chain, &ann, "PUT", &format!("{leases}/there"), Some(&there)).await.0, 200);
    for path in [format!("{leases}/missing"), format!("{leases}/missing?dryRun=All")] {
        let (code, status) = call_as(&chain, &ann, "PUT", &path, Some(&lease("missing"))).await;
        assert_eq!(code, 403, "{status}");
        assert!(
            status["message"].as_str().unwrap().contains("cannot create resource \"leases\""),
            "{status}"
        );
    }
    assert_eq!(get(&chain, &format!("{leases}/missing")).await.0, 404);
    grant(&chain, "creator", &["create"], "coordination.k8s.io", &["leases"]).await;
    let path = format!("{leases}/missing");
    assert_eq!(call_as(&chain, &ann, "PUT", &path, Some(&lease("missing"))).await.0, 201);
}

#[tokio::test]
async fn connecting_to_a_pod_by_websocket_needs_create() {
    let (chain, _store) = server().await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "web", "image": "web"}]}});
    create(&chain, "/api/v1/namespaces/default/pods", &pod).await;
    let resources = ["pods/exec", "pods/attach", "pods/portforward"];
    grant(&chain, "reader", &["get"], "", &resources).await;
    let connect = async |subresource: &str| {
        let path = format!("/api/v1/namespaces/default/pods/web/{subresource}?command=id&stdout=true");
        call_as(&chain, &user("ann"), "GET", &path, None).await
    };
    for subresource in ["exec", "attach", "portforward"] {
        let (code, status) = connect(subresource).await;
        assert_eq!((code, &status["reason"]), (403, &json!("Forbidden")), "{subresource}: {status}");
    }
    grant(&chain, "runner", &["create"], "", &resources).await;
    for subresource in ["exec", "attach", "portforward"] {
        let (code, status) = connect(subresource).await;
        assert_eq!(
            (code, status["message"].as_str().unwrap()),
            (400, "pod web does not have a host assigned"),
            "{subresource}"
        );
    }
    // The administrator needs no role.
    let path = "/api/v1/namespaces/default/pods/web/exec?command=id&stdout=true";
    assert_eq!(call(&chain, "GET", path, None).await.0, 400);
}
