//! Decisions: who may do what, at once after a write.

use std::sync::Arc;

use async_trait::async_trait;
use orlop_server::{
    Tokens, User,
    auth::{
        Authorizer, Decision,
        authorizer::{Authorizing, Rules, decided},
        issuer::Issuer,
    },
    chain::Chain,
    cluster::Cluster,
    registry::Kinds,
    request::Attributes,
};
use orlop_store::{Config, Endpoint, Store};
use serde_json::json;

use crate::{
    RBAC, binding, call_as, in_namespace, role,
    support::{call, create, server},
    user,
};

#[tokio::test]
async fn binding_is_in_force_when_its_write_is_answered() {
    let (chain, _store) = server().await;
    let (ann, pods) = (user("ann"), "/api/v1/namespaces/default/pods");
    for _ in 0..20 {
        let (code, status) = call_as(&chain, &ann, "GET", pods, None).await;
        assert_eq!(code, 403);
        assert_eq!(
            status["message"],
            "pods is forbidden: User \"ann\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\""
        );
        let view = binding("RoleBinding", "ann", "ClusterRole/system:aggregate-to-view", &["User:ann"]);
        create(&chain, &in_namespace("default", "rolebindings"), &view).await;
        assert_eq!(call_as(&chain, &ann, "GET", pods, None).await.0, 200);
        assert_eq!(call_as(&chain, &ann, "GET", "/api/v1/pods", None).await.0, 403);
        let path = in_namespace("default", "rolebindings/ann");
        assert_eq!(call(&chain, "DELETE", &path, None).await.0, 200);
    }
}

#[tokio::test]
async fn role_bound_in_a_namespace_is_for_the_namespace_itself() {
    let (chain, _store) = server().await;
    let ann = user("ann");
    let rules = json!([{"verbs": ["get", "patch"], "apiGroups": [""], "resources": ["namespaces"]}]);
    create(&chain, &in_namespace("default", "roles"), &role("Role", "own", rules)).await;
    let bound = binding("RoleBinding", "own", "Role/own", &["User:ann"]);
    create(&chain, &in_namespace("default", "rolebindings"), &bound).await;
    assert_eq!(call_as(&chain, &ann, "GET", "/api/v1/namespaces/default", None).await.0, 200);
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(call_as(&chain, &ann, "PATCH", "/api/v1/namespaces/default", Some(&label)).await.0, 200);
    let (code, status) = call_as(&chain, &ann, "GET", "/api/v1/namespaces/kube-system", None).await;
    let message = "namespaces \"kube-system\" is forbidden: User \"ann\" cannot get resource \"namespaces\" in API group \
        \"\" in the namespace \"kube-system\"";
    assert_eq!((code, status["message"].as_str()), (403, Some(message)));
    // Other resources of the cluster are in no namespace, whatever their names are.
    assert_eq!(call_as(&chain, &ann, "GET", "/api/v1/nodes/default", None).await.0, 403);
    assert_eq!(call_as(&chain, &ann, "GET", "/api/v1/namespaces", None).await.0, 403);
    assert_eq!(call_as(&chain, &ann, "DELETE", "/api/v1/namespaces/default", None).await.0, 403);
}

#[tokio::test]
async fn change_of_a_role_is_in_force_for_all_its_bindings() {
    let (chain, _store) = server().await;
    let path = format!("{RBAC}/clusterroles");
    let rules = |verb: &str| json!([{"verbs": [verb], "apiGroups": [""], "resources": ["nodes"]}]);
    create(&chain, &path, &role("ClusterRole", "nodes", rules("get"))).await;
    let bound = binding("ClusterRoleBinding", "nodes", "ClusterRole/nodes", &["Group:ops"]);
    create(&chain, &format!("{RBAC}/clusterrolebindings"), &bound).await;
    let ops = User::authenticated("bob", ["ops".to_owned()]);
    assert_eq!(call_as(&chain, &ops, "GET", "/api/v1/nodes", None).await.0, 403);
    let change = json!({"rules": rules("list")});
    assert_eq!(call(&chain, "PATCH", &format!("{path}/nodes"), Some(&change)).await.0, 200);
    assert_eq!(call_as(&chain, &ops, "GET", "/api/v1/nodes", None).await.0, 200);
    assert_eq!(call_as(&chain, &ops, "GET", "/api/v1/nodes/x", None).await.0, 403);
    assert_eq!(call(&chain, "DELETE", &format!("{path}/nodes"), None).await.0, 200);
    let (code, status) = call_as(&chain, &ops, "GET", "/api/v1/nodes", None).await;
    let message = "nodes is forbidden: User \"bob\" cannot list resource \"nodes\" in API group \"\" at the cluster scope: \
        RBAC: clusterrole.rbac.authorization.k8s.io \"nodes\" not found";
    assert_eq!((code, status["message"].as_str()), (403, Some(message)));
}

#[tokio::test]
async fn users_verbs_and_kinds_decide_as_expected() {
    let (chain, _store) = server().await;
    let rolebindings = in_namespace("default", "rolebindings");
    // Aggregation is a controller's work: the roles that it gathers are bound here.
    for (name, target, subject) in [
        ("viewer", "ClusterRole/system:aggregate-to-view", "User:viewer"),
        ("editor-1", "ClusterRole/system:aggregate-to-edit", "User:editor"),
        ("editor-2", "ClusterRole/system:aggregate-to-view", "User:editor"),
        ("admin", "ClusterRole/system:aggregate-to-admin", "User:admin"),
    ] {
        create(&chain, &rolebindings, &binding("RoleBinding", name, target, &[subject])).await;
    }
    let scheduler = User::authenticated("system:kube-scheduler", []);
    let reader = User::service_account("kube-system", "namespace-controller");
    let namespaced = "/api/v1/namespaces/default";
    let cases = [
        // Path, method, and the users that may: viewer, editor, admin, scheduler, namespace controller, anonymous.
        (format!("{namespaced}/configmaps"), "GET", [true, false, false, false, true, false]),
        (format!("{namespaced}/configmaps/x"), "DELETE", [false, true, false, false, true, false]),
        (format!("{namespaced}/secrets"), "GET", [false, true, false, false, true, false]),
        (format!("{namespaced}/secrets"), "DELETE", [false, true, false, false, true, false]),
        (format!("{namespaced}/pods/x/log"), "GET", [true, true, false, false, true, false]),
        (format!("{namespaced}/pods/x/exec"), "POST", [false, true, false, false, false, false]),
        (format!("{namespaced}/pods/x/status"), "PATCH", [false, false, false, true, false, false]),
        ("/api/v1/namespaces/other/configmaps".to_owned(), "GET", [false, false, false, false, true, false]),
        ("/api/v1/nodes".to_owned(), "GET", [false, false, false, true, true, false]),
        (in_namespace("default", "roles"), "GET", [false, false, true, false, true, false]),
        (in_namespace("default", "rolebindings/x"), "DELETE", [false, false, true, false, true, false]),
        (format!("{RBAC}/clusterroles"), "GET", [false, false, false, false, true, false]),
        (
            "/apis/apps/v1/namespaces/default/deployments/x/scale".to_owned(),
            "PUT",
            [false, true, false, false, false, false],
        ),
        ("/api".to_owned(), "GET", [true, true, true, true, true, false]),
        ("/version".to_owned(), "GET", [true; 6]),
        ("/readyz".to_owned(), "GET", [true; 6]),
        ("/metrics".to_owned(), "GET", [false; 6]),
    ];
    let users = [
        ("viewer", user("viewer")),
        ("editor", user("editor")),
        ("admin", user("admin")),
        ("scheduler", scheduler),
        ("namespace-controller", reader),
        ("anonymous", User::anonymous()),
    ];
    for (path, method, expected) in cases {
        for ((name, user), expected) in users.iter().zip(expected) {
            let expected =
                expected || (*name == "editor" && method == "GET" && path.ends_with("/default/configmaps"));
            let (code, answer) = call_as(&chain, user, method, &path, None).await;
            assert_eq!(code != 403, expected, "{name} {method} {path}: {code} {answer}");
        }
    }
    let (_, metrics) = call_as(&chain, &User::master("admin"), "GET", "/metrics", None).await;
    let metrics = metrics.as_str().unwrap();
    for result in ["allowed", "no-opinion"] {
        let name = format!(r#"authorization_attempts_total{{result="{result}"}}"#);
        let count = metrics.lines().find_map(|line| line.strip_prefix(&name)).unwrap();
        assert!(count.trim().parse::<u32>().unwrap() > 10, "{count}");
    }
    assert!(metrics.contains(r#"authorization_duration_seconds_count{result="allowed"}"#));
}

#[tokio::test]
async fn a_role_in_a_namespace_grants_access_to_the_namespace() {
    let (chain, _store) = server().await;
    let view = binding("RoleBinding", "view", "ClusterRole/system:aggregate-to-view", &["User:ann"]);
    create(&chain, &in_namespace("default", "rolebindings"), &view).await;
    let ann = user("ann");
    let ask = async |method: &str, path: &str| call_as(&chain, &ann, method, path, None).await;
    let (code, namespace) = ask("GET", "/api/v1/namespaces/default").await;
    assert_eq!((code, &namespace["metadata"]["name"]), (200, &json!("default")), "{namespace}");
    let (code, status) = ask("GET", "/api/v1/namespaces/kube-system").await;
    let message = "namespaces \"kube-system\" is forbidden: User \"ann\" cannot get resource \"namespaces\" in API group \"\" \
                   in the namespace \"kube-system\"";
    assert_eq!((code, status["message"].as_str()), (403, Some(message)));
    for (method, path) in [
        ("DELETE", "/api/v1/namespaces/default"),
        ("GET", "/api/v1/namespaces"),
        ("GET", "/api/v1/namespaces?fieldSelector=metadata.name%3Ddefault"),
    ] {
        assert_eq!(ask(method, path).await.0, 403, "{method} {path}");
    }
}

/// Denies `/metrics`, and allows everything else.
#[derive(Debug)]
struct NoMetrics;

#[async_trait]
impl Authorizer for NoMetrics {
    fn authorize<'a>(&'a self, attributes: &'a Attributes) -> Authorizing<'a> {
        decided(match attributes.path.as_str() {
            "/metrics" => Decision::Deny("not these".into()),
            _ => Decision::Allow("".into()),
        })
    }

    async fn rules(&self, _user: &User, _namespace: &str) -> Rules {
        Rules::default()
    }
}

#[tokio::test]
async fn a_denied_path_has_no_other_spelling() {
    let store = Store::open(Config::new(Endpoint::Memory)).await.unwrap();
    let cluster = Arc::new(Cluster::new(store, Kinds::builtin(), Issuer::generate().unwrap()));
    let chain = Chain::new(cluster.clone(), Tokens::default());
    cluster.authorizer().replace(vec![Arc::new(NoMetrics)]);
    let code = async |path: &str| call_as(&chain, &user("ann"), "GET", path, None).await.0;
    assert_eq!(code("/metrics").await, 403);
    for path in ["//metrics", "/metrics/", "/%6detrics", "/./metrics", "///metrics//"] {
        assert_eq!(code(path).await, 404, "{path}");
    }
    for path in ["/", "/metrics/slis", "/api/", "/apis/", "/apis/apps/", "/apis/apps/v1/", "/version"] {
        assert_eq!(code(path).await, 200, "{path}");
    }
}

#[tokio::test]
async fn names_with_signs_of_forms_are_whole() {
    let (chain, _store) = server().await;
    let roles = format!("{RBAC}/clusterroles");
    let rules = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]);
    for name in ["mine", "mine&yours mine"] {
        create(&chain, &roles, &role("ClusterRole", name, rules.clone())).await;
    }
    let only = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["clusterroles"], "resourceNames": ["mine"]}]);
    create(&chain, &roles, &role("ClusterRole", "only", only)).await;
    let bound = binding("ClusterRoleBinding", "only", "ClusterRole/only", &["User:ann"]);
    create(&chain, &format!("{RBAC}/clusterrolebindings"), &bound).await;
    let other = format!("{roles}/mine&yours%20mine");
    let (code, found) = call(&chain, "GET", &other, None).await;
    assert_eq!((code, &found["metadata"]["name"]), (200, &json!("mine&yours mine")));
    assert_eq!(call_as(&chain, &user("ann"), "DELETE", &other, None).await.0, 403);
    assert_eq!(call(&chain, "GET", &format!("{roles}/mine"), None).await.0, 200);
}

#[tokio::test]
async fn resource_names_limit_lists_by_field_selector() {
    let (chain, _store) = server().await;
    let rules = json!([{"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["mine"]}]);
    create(&chain, &in_namespace("default", "roles"), &role("Role", "mine", rules)).await;
    let bound = binding("RoleBinding", "mine", "Role/mine", &["User:ann"]);
    create(&chain, &in_namespace("default", "rolebindings"), &bound).await;
    let (ann, secrets) = (user("ann"), "/api/v1/namespaces/default/secrets");
    let code = async |path: String| call_as(&chain, &ann, "GET", &path, None).await.0;
    assert_eq!(code(format!("{secrets}?fieldSelector=metadata.name%3Dmine")).await, 200);
    assert_eq!(code(format!("{secrets}?fieldSelector=metadata.name%3Dother")).await, 403);
    assert_eq!(code(secrets.to_owned()).await, 403);
    assert_eq!(code(format!("{secrets}/mine")).await, 404);
    assert_eq!(code(format!("{secrets}/other")).await, 403);
}
