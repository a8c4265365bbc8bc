//! Escalation: nobody grants what they do not hold.

use orlop_server::chain::Chain;
use serde_json::{Value, json};

use crate::{
    RBAC, binding, call_as, in_namespace, role,
    support::{apply, call, create, server},
    user,
};

/// Lets `ann` write all RBAC objects in `default` and cluster-wide, and read pods in `default`.
async fn delegate(chain: &Chain) {
    let write = json!([{"verbs": ["*"], "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["roles", "rolebindings", "clusterroles", "clusterrolebindings"]}]);
    let mut write = role("ClusterRole", "rbac-writer", write);
    // All verbs are also escalate and bind.
    write["rules"][0]["verbs"] = json!(["get", "list", "create", "update", "patch", "delete"]);
    create(chain, &format!("{RBAC}/clusterroles"), &write).await;
    let bound = binding("ClusterRoleBinding", "rbac-writer", "ClusterRole/rbac-writer", &["User:ann"]);
    create(chain, &format!("{RBAC}/clusterrolebindings"), &bound).await;
    let pods = role("Role", "pods", pods(&["get", "list"]));
    create(chain, &in_namespace("default", "roles"), &pods).await;
    let bound = binding("RoleBinding", "pods", "Role/pods", &["User:ann"]);
    create(chain, &in_namespace("default", "rolebindings"), &bound).await;
}

fn pods(verbs: &[&str]) -> Value {
    json!([{"verbs": verbs, "apiGroups": [""], "resources": ["pods"]}])
}

#[tokio::test]
async fn role_grants_only_what_its_writer_holds() {
    let (chain, _store) = server().await;
    delegate(&chain).await;
    let (ann, roles) = (user("ann"), in_namespace("default", "roles"));
    let (code, status) =
        call_as(&chain, &ann, "POST", &roles, Some(&role("Role", "more", pods(&["get", "delete"])))).await;
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        "roles.rbac.authorization.k8s.io \"more\" is forbidden: user \"ann\" (groups=[\"system:authenticated\"]) is \
         attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], \
         Verbs:[\"delete\"]}"
    );
    let held = role("Role", "less", pods(&["get"]));
    assert_eq!(call_as(&chain, &ann, "POST", &roles, Some(&held)).await.0, 201);
    // Neither update, patch nor apply goes further, nor a dry run; PUT may create.
    let path = format!("{roles}/less");
    let more = role("Role", "less", pods(&["delete"]));
    for (method, path, body) in [
        ("PUT", path.clone(), more.clone()),
        ("PATCH", path.clone(), json!({"rules": pods(&["delete"])})),
        ("PUT", format!("{roles}/new"), role("Role", "new", pods(&["delete"]))),
        ("POST", format!("{roles}?dryRun=All"), role("Role", "new", pods(&["delete"]))),
    ] {
        let (code, status) = call_as(&chain, &ann, method, &path, Some(&body)).await;
        assert_eq!(code, 403, "{method} {path} {status}");
    }
    // What is held in one namespace cannot be granted in another, or everywhere.
    let elsewhere = in_namespace("kube-system", "roles");
    assert_eq!(call_as(&chain, &ann, "POST", &elsewhere, Some(&held)).await.0, 403);
    let cluster = role("ClusterRole", "less", pods(&["get"]));
    assert_eq!(call_as(&chain, &ann, "POST", &format!("{RBAC}/clusterroles"), Some(&cluster)).await.0, 403);
    // A change that only garbage collection would make is not a grant.
    let too_much = role("Role", "too-much", pods(&["delete"]));
    create(&chain, &roles, &too_much).await;
    let path = format!("{roles}/too-much");
    let finalizer = json!({"metadata": {"finalizers": ["example.com/x"]}});
    assert_eq!(call_as(&chain, &ann, "PATCH", &path, Some(&finalizer)).await.0, 200);
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(call_as(&chain, &ann, "PATCH", &path, Some(&label)).await.0, 403);
    // The administrator may, by any verb.
    assert_eq!(apply_code(&chain, &format!("{roles}/less?fieldManager=x&force=true"), &more).await, 200);
}

async fn apply_code(chain: &Chain, path: &str, object: &Value) -> u16 {
    apply(chain, path, object).await.0
}

#[tokio::test]
async fn escalate_verb_lifts_the_limit() {
    let (chain, _store) = server().await;
    delegate(&chain).await;
    let escalate =
        json!([{"verbs": ["escalate"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"]}]);
    create(&chain, &in_namespace("default", "roles"), &role("Role", "escalator", escalate)).await;
    let bound = binding("RoleBinding", "escalator", "Role/escalator", &["User:ann"]);
    create(&chain, &in_namespace("default", "rolebindings"), &bound).await;
    let wanted = role("Role", "more", pods(&["delete"]));
    let code =
        async |path: &str, role: &Value| call_as(&chain, &user("ann"), "POST", path, Some(role)).await.0;
    assert_eq!(code(&in_namespace("default", "roles"), &wanted).await, 201);
    assert_eq!(code(&in_namespace("kube-system", "roles"), &wanted).await, 403);
}

#[tokio::test]
async fn binding_grants_only_what_its_writer_holds() {
    let (chain, _store) = server().await;
    delegate(&chain).await;
    let (ann, bindings) = (user("ann"), in_namespace("default", "rolebindings"));
    create(&chain, &in_namespace("default", "roles"), &role("Role", "deleter", pods(&["delete"]))).await;
    let bind = |name: &str, role: &str| binding("RoleBinding", name, role, &["User:bob"]);
    let refused = async |binding: &Value| {
        let (code, status) = call_as(&chain, &ann, "POST", &bindings, Some(binding)).await;
        (code, status["message"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(refused(&bind("ok", "Role/pods")).await.0, 201);
    let (code, message) = refused(&bind("b", "Role/deleter")).await;
    assert_eq!(code, 403);
    assert_eq!(
        message,
        "rolebindings.rbac.authorization.k8s.io \"b\" is forbidden: user \"ann\" (groups=[\"system:authenticated\"]) is \
         attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], \
         Verbs:[\"delete\"]}"
    );
    let (code, message) = refused(&bind("b", "ClusterRole/none")).await;
    assert_eq!((code, message.as_str()), (404, "clusterroles.rbac.authorization.k8s.io \"none\" not found"));
    // cluster-admin above all.
    let path = format!("{RBAC}/clusterrolebindings");
    let all = binding("ClusterRoleBinding", "b", "ClusterRole/cluster-admin", &["User:ann"]);
    assert_eq!(call_as(&chain, &ann, "POST", &path, Some(&all)).await.0, 403);
    // The verb bind on a role lifts the limit for that role.
    let rules = json!([{"verbs": ["bind"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"],
        "resourceNames": ["deleter"]}]);
    create(&chain, &in_namespace("default", "roles"), &role("Role", "binder", rules)).await;
    create(&chain, &bindings, &binding("RoleBinding", "binder", "Role/binder", &["User:ann"])).await;
    assert_eq!(refused(&bind("b", "Role/deleter")).await.0, 201);
    assert_eq!(
        refused(&bind("c", "ClusterRole/view")).await.0,
        201,
        "no controller has gathered its rules yet"
    );
    assert_eq!(refused(&bind("d", "ClusterRole/system:aggregate-to-view")).await.0, 403);
    // A binding's role never changes.
    let change =
        json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "pods"}});
    let (code, status) = call(&chain, "PATCH", &format!("{bindings}/b"), Some(&change)).await;
    assert_eq!(code, 422);
    assert!(
        status["message"].as_str().is_some_and(|message| message.contains("cannot change roleRef")),
        "{status}"
    );
}

#[tokio::test]
async fn aggregation_rule_needs_full_authority() {
    let (chain, _store) = server().await;
    delegate(&chain).await;
    let mut aggregated = role("ClusterRole", "all", json!([]));
    aggregated["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]});
    let path = format!("{RBAC}/clusterroles");
    let (code, status) = call_as(&chain, &user("ann"), "POST", &path, Some(&aggregated)).await;
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        "clusterroles.rbac.authorization.k8s.io \"all\" is forbidden: must have cluster-admin privileges to use the \
         aggregationRule"
    );
    create(&chain, &path, &aggregated).await;
    let change = json!({"aggregationRule": null});
    let code = call_as(&chain, &user("ann"), "PATCH", &format!("{path}/all"), Some(&change)).await.0;
    assert_eq!(code, 403);
}
