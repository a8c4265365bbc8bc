//! Authorization as kubectl sees it.

use std::{fs, path::PathBuf, process::Command};

use crate::support::Server;

#[test]
fn can_i_follows_roles_and_bindings() {
    let server = Server::start();
    let can = |arguments: &[&str]| {
        let (allowed, text) = server.run(&[&["auth", "can-i"], arguments].concat(), "");
        assert_eq!(text.lines().last().is_some_and(|line| line == "yes"), allowed, "{text}");
        allowed
    };
    assert!(!can(&["list", "pods", "--as=ann"]));
    server.kubectl(&["create", "rolebinding", "ann", "--clusterrole=view", "--user=ann"]);
    // Aggregation gathers the rules of view as soon as the server is up.
    server.eventually(&["auth", "can-i", "list", "pods", "--as=ann"], |text| text.ends_with("yes"));
    assert!(can(&["get", "pods", "--subresource=log", "--as=ann"]));
    assert!(!can(&["list", "secrets", "--as=ann"]));
    assert!(!can(&["create", "pods", "--as=ann"]));
    assert!(!can(&["list", "pods", "--as=ann", "-n", "kube-system"]));
    assert!(!can(&["list", "pods", "--as=ann", "--all-namespaces"]));
    assert!(can(&["get", "/version", "--as=ann"]));
    assert!(!can(&["get", "/metrics", "--as=ann"]));
    assert!(can(&[
        "create",
        "deployments.apps",
        "--as=system:serviceaccount:kube-system:x",
        "--as-group=system:masters"
    ]));
    let list = server.kubectl(&["auth", "can-i", "--list", "--as=ann"]);
    assert!(list.contains("selfsubjectaccessreviews.authorization.k8s.io"), "{list}");
    assert!(list.contains("pods/log") && !list.contains("*.*"), "{list}");

    server.kubectl(&["create", "serviceaccount", "builder"]);
    server.kubectl(&[
        "create",
        "role",
        "secrets",
        "--verb=get,list",
        "--resource=secrets",
        "--resource-name=mine",
    ]);
    server.kubectl(&[
        "create",
        "rolebinding",
        "builder",
        "--role=secrets",
        "--serviceaccount=default:builder",
    ]);
    let builder = "--as=system:serviceaccount:default:builder";
    assert!(can(&["get", "secrets/mine", builder]));
    assert!(!can(&["get", "secrets/other", builder]));
    assert!(!can(&["list", "secrets", builder]));
}

const POLICY: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: app, namespace: default}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: app, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: app}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: ann}
"#;

#[test]
fn reconcile_adds_rules_and_recreates_bindings() {
    let server = Server::start();
    let reconcile = |text: &str| server.with_input(&["auth", "reconcile", "-f", "-"], text);
    assert!(reconcile(POLICY).contains("role.rbac.authorization.k8s.io/app reconciled"));
    assert_eq!(
        server.kubectl(&["get", "configmaps", "--as=ann", "-o", "name"]),
        "configmap/kube-root-ca.crt"
    );
    // Rules are added, subjects too; another role makes a new binding.
    reconcile(&POLICY.replace("[configmaps]", "[secrets]").replace("name: ann", "name: bob"));
    let rules = server.kubectl(&["get", "role", "app", "-o", "jsonpath={.rules[*].resources[*]}"]);
    assert!(rules.contains("configmaps") && rules.contains("secrets"), "{rules}");
    assert!(server.kubectl(&["get", "secrets", "--as=bob"]).contains("No resources found"));
    server.kubectl(&["create", "role", "other", "--verb=get", "--resource=pods"]);
    let other = POLICY.replace("kind: Role, name: app}", "kind: Role, name: other}");
    let report = reconcile(&other);
    assert!(report.contains("rolebinding.rbac.authorization.k8s.io/app reconciled"), "{report}");
    assert_eq!(server.kubectl(&["get", "rolebinding", "app", "-o", "jsonpath={.roleRef.name}"]), "other");
}

#[test]
fn escalation_is_refused() {
    let server = Server::start();
    server.kubectl(&["create", "clusterrole", "granter", "--verb=*", "--resource=roles,rolebindings"]);
    server.kubectl(&["create", "clusterrole", "reader", "--verb=get,list", "--resource=pods"]);
    server.kubectl(&[
        "create",
        "rolebinding",
        "granter",
        "--clusterrole=system:aggregate-to-admin",
        "--user=ann",
    ]);
    server.kubectl(&["create", "rolebinding", "reader", "--clusterrole=reader", "--user=ann"]);
    server.kubectl(&["create", "role", "pods", "--verb=get", "--resource=pods", "--as=ann"]);
    let refused =
        server.refused(&["create", "role", "all", "--verb=delete", "--resource=pods", "--as=ann"], "");
    assert!(refused.contains("is attempting to grant RBAC permissions not currently held:"), "{refused}");
    assert!(refused.contains(r#"{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}"#), "{refused}");
    let refused = server.refused(
        &["create", "rolebinding", "up", "--clusterrole=cluster-admin", "--user=ann", "--as=ann"],
        "",
    );
    assert!(refused.contains(r#"{APIGroups:["*"], Resources:["*"], Verbs:["*"]}"#), "{refused}");
}

#[test]
fn aggregated_roles_follow_their_parts() {
    let server = Server::start();
    let part = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: widgets-view, labels: {rbac.authorization.k8s.io/aggregate-to-view: "true"}}
rules: [{apiGroups: [example.com], resources: [widgets], verbs: [get]}]
"#;
    server.with_input(&["create", "-f", "-"], part);
    // edit aggregates view, and admin aggregates edit.
    for role in ["view", "edit", "admin"] {
        server.eventually(&["get", "clusterrole", role, "-o", "jsonpath={.rules}"], |rules| {
            rules.contains("widgets")
        });
    }
    let managers = [
        "get",
        "clusterrole",
        "view",
        "--show-managed-fields",
        "-o",
        "jsonpath={.metadata.managedFields[*].manager}",
    ];
    assert!(server.kubectl(&managers).contains("clusterrole-aggregation-controller"));
    server.kubectl(&["delete", "clusterrole", "widgets-view"]);
    server.eventually(&["get", "clusterrole", "admin", "-o", "jsonpath={.rules}"], |rules| {
        !rules.contains("widgets")
    });
}

#[test]
fn modes_are_chosen_by_flag_and_by_file() {
    let server = Server::start_with(&["--authorization-mode=AlwaysAllow"]);
    assert_eq!(server.kubectl(&["auth", "can-i", "delete", "pods", "--as=ann"]), "yes");
    // Nobody is everybody: who has no credential is refused.
    let url = server.kubectl(&["config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"]);
    let without = ["--kubeconfig=/dev/null", "--insecure-skip-tls-verify", "--username=a", "--password=b"];
    let anonymous = [&["get", "namespaces", "--server", &url], &without[..]].concat();
    server.refused(&anonymous, "Unauthorized");
    drop(server);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("authorization.yaml");
    let text = |authorizers: &str| {
        format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: {authorizers}\n"
        )
    };
    fs::write(&file, text("[{type: RBAC, name: rbac}]")).expect("the file");
    let option = format!("--authorization-config={}", file.display());
    let server = Server::start_with(&[&option]);
    server.refused(&["get", "pods", "--as=ann"], "");
    // A file that cannot be used changes nothing; one that can takes effect without a restart.
    fs::write(&file, text("[{type: RBAC, name: rbac}, {type: Magic, name: m}]")).expect("the file");
    fs::write(&file, text("[{type: RBAC, name: rbac}, {type: AlwaysAllow, name: alwaysallow}]"))
        .expect("the file");
    server.eventually(&["auth", "can-i", "get", "pods", "--as=ann"], |text| text == "yes");
    drop(server);
    fs::write(&file, text("[{type: RBAC, name: rbac, extra: 1}]")).expect("the file");
    let refused = |options: &[&str]| {
        let orlop = PathBuf::from(env!("CARGO_BIN_EXE_orlop"));
        let output =
            Command::new(orlop).args(["serve", "--ephemeral"]).args(options).output().expect("orlop runs");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let error = refused(&[&option]);
    assert!(error.contains("strict decoding error: unknown field \"authorizers[0].extra\""), "{error}");
    let error = refused(&["--authorization-mode=RBAC,Magic"]);
    assert!(error.contains("authorization-mode \"Magic\" is not a valid mode"), "{error}");
    let error = refused(&["--authorization-mode=Webhook"]);
    assert!(error.contains("authorization-mode Webhook's authorization config file not passed"), "{error}");
    let error = refused(&[&option, "--authorization-mode=RBAC"]);
    assert!(error.contains("cannot be used with"), "{error}");
}
