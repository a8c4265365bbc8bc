//! Devices: admin access needs a label of the namespace, and parts of a claim's status permissions of their own.

use serde_json::{Value, json};

use crate::{
    RBAC, binding, call_as, role,
    support::{call, create, server},
    user,
};

const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";

fn claim(name: &str, admin_access: bool) -> Value {
    let exactly = json!({"deviceClassName": "a.b", "adminAccess": admin_access});
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "a", "exactly": exactly}]}}})
}

#[tokio::test]
async fn admin_access_needs_a_label_of_the_namespace() {
    let (chain, _store) = server().await;
    let message = |path: &str, status: &Value| {
        let detail = "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the \
                      containing namespace";
        assert_eq!(status["details"]["causes"][0]["field"], path);
        assert_eq!(status["details"]["causes"][0]["message"], format!("Forbidden: {detail}"));
    };
    let (code, status) = call(&chain, "POST", CLAIMS, Some(&claim("c", true))).await;
    assert_eq!(code, 422, "{status}");
    message("spec.devices.requests[0].adminAccess", &status);
    create(&chain, CLAIMS, &claim("c", false)).await;
    let result =
        json!({"request": "a", "driver": "dra.example.com", "pool": "p", "device": "d", "adminAccess": true});
    let allocated = json!({"status": {"allocation": {"devices": {"results": [result]}}}});
    let (code, status) = call(&chain, "PATCH", &format!("{CLAIMS}/c/status"), Some(&allocated)).await;
    assert_eq!(code, 422, "{status}");
    message("status.allocation.devices.results[0].adminAccess", &status);

    let label = json!({"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}});
    assert_eq!(call(&chain, "PATCH", "/api/v1/namespaces/default", Some(&label)).await.0, 200);
    create(&chain, CLAIMS, &claim("admin", true)).await;
    assert_eq!(call(&chain, "PATCH", &format!("{CLAIMS}/c/status"), Some(&allocated)).await.0, 200);
}

#[tokio::test]
async fn status_of_claims_needs_permissions_for_its_parts() {
    let (chain, _store) = server().await;
    let grant = async |name: &str, resource: &str, verb: &str| {
        let rules = json!([{"verbs": [verb], "apiGroups": ["resource.k8s.io"], "resources": [resource]}]);
        create(&chain, &format!("{RBAC}/clusterroles"), &role("ClusterRole", name, rules)).await;
        let bound = binding("ClusterRoleBinding", name, &format!("ClusterRole/{name}"), &["User:ann"]);
        create(&chain, &format!("{RBAC}/clusterrolebindings"), &bound).await;
    };
    create(&chain, CLAIMS, &claim("c", false)).await;
    grant("status", "resourceclaims/status", "patch").await;
    let (ann, path) = (user("ann"), format!("{CLAIMS}/c/status"));
    let device = json!({"driver": "dra.example.com", "pool": "p", "device": "d"});
    let mut result = device.clone();
    result["request"] = "a".into();
    let allocated = json!({"status": {"allocation": {"devices": {"results": [result]}}}});
    let (code, status) = call_as(&chain, &ann, "PATCH", &path, Some(&allocated)).await;
    assert_eq!(code, 422, "{status}");
    assert_eq!(
        status["details"]["causes"][0]["message"],
        "Forbidden: changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", \
         verb=\"patch\" permission: resourceclaims.resource.k8s.io is forbidden: User \"ann\" cannot patch resource \
         \"resourceclaims/binding\" in API group \"resource.k8s.io\" at the cluster scope"
    );
    grant("binding", "resourceclaims/binding", "patch").await;
    assert_eq!(call_as(&chain, &ann, "PATCH", &path, Some(&allocated)).await.0, 200);

    let reported = json!({"status": {"devices": [device]}});
    let (code, status) = call_as(&chain, &ann, "PATCH", &path, Some(&reported)).await;
    assert_eq!(code, 422, "{status}");
    assert_eq!(
        status["details"]["causes"][0]["message"],
        "Forbidden: changing status.devices requires resource=\"resourceclaims/driver\", \
         verb=\"[arbitrary-node:patch]\" permission: resourceclaims.resource.k8s.io \"dra.example.com\" is forbidden: \
         User \"ann\" cannot arbitrary-node:patch resource \"resourceclaims/driver\" in API group \"resource.k8s.io\" in \
         the namespace \"default\""
    );
    grant("driver", "resourceclaims/driver", "arbitrary-node:patch").await;
    assert_eq!(call_as(&chain, &ann, "PATCH", &path, Some(&reported)).await.0, 200);
    // A change of neither needs neither.
    let (code, status) = call_as(&chain, &ann, "PATCH", &path, Some(&json!({"status": {}}))).await;
    assert_eq!(code, 200, "{status}");
}
