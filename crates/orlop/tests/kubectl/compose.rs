//! Composition as kubectl sees it: `orlop serve --compose`.

use std::{fs, path::PathBuf, process::Command};

use crate::support::Server;

fn example(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/compose").join(name);
    fs::read_to_string(path).expect("the example is there")
}

fn compose(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_orlop")).arg("compose").args(arguments).output();
    let output = output.expect("orlop runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn definitions_make_kinds_that_kubectl_knows() {
    let server = Server::start_with(&["--compose"]);
    server.eventually(&["get", "crd", "resourcegraphdefinitions.kro.run"], |text| text.contains("kro.run"));
    server.with_input(&["apply", "-f", "-"], &example("web-app.yaml"));
    server.eventually(&["get", "rgd", "web-app"], |text| text.contains("WebApp") && text.contains("Active"));
    server.with_input(&["apply", "-f", "-"], &example("shop.yaml"));
    server.eventually(&["get", "webapps"], |text| {
        text.lines().any(|line| line.starts_with("shop") && line.contains("ACTIVE") && line.contains("True"))
    });
    let described = server.kubectl(&["explain", "webapp.spec.image"]);
    assert!(described.contains("Image of the application"), "{described}");
    let children =
        server.kubectl(&["get", "configmaps,deployments", "-l", "kro.run/instance-name=shop", "-o", "name"]);
    assert!(
        children.contains("deployment.apps/shop") && children.contains("configmap/shop-settings"),
        "{children}"
    );
    server.kubectl(&["delete", "webapp", "shop"]);
    let children =
        server.kubectl(&["get", "configmaps,deployments", "-l", "kro.run/instance-name=shop", "-o", "name"]);
    assert_eq!(children, "");
}

#[test]
fn manifests_install_the_controller() {
    let server = Server::start();
    // Objects of a namespace need it to be there, also for a dry run.
    server.kubectl(&["create", "namespace", "kro-system"]);
    for rights in ["unrestricted", "aggregation"] {
        let manifests =
            compose(&["manifests", "--image", "registry.example.com/orlop:1", "--rights", rights]);
        let applied = server.with_input(&["apply", "--dry-run=server", "-f", "-"], &manifests);
        assert!(applied.contains("deployment.apps/orlop-compose created (server dry run)"), "{applied}");
    }
    server.with_input(&["apply", "-f", "-"], &compose(&["crd"]));
    let roles = server.with_input(&["apply", "-f", "-"], &compose(&["rbac", "--rights", "aggregation"]));
    assert!(roles.contains("clusterrole.rbac.authorization.k8s.io/orlop-compose-kinds created"), "{roles}");
}

const DEFINITION: &str = r#"
apiVersion: kro.run/v1alpha1
kind: ResourceGraphDefinition
metadata:
  name: pair
spec:
  schema:
    apiVersion: v1alpha1
    kind: Pair
    spec:
      value: string
  resources:
    - id: map
      template:
        apiVersion: v1
        kind: ConfigMap
        metadata:
          name: ${schema.metadata.name}
        data:
          value: ${schema.spec.value}
"#;

const INSTANCE: &str = r#"
apiVersion: kro.run/v1alpha1
kind: Pair
metadata:
  name: one
spec:
  value: x
"#;

const GRANT: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: compose-maps
  labels:
    rbac.kro.run/aggregate-to-controller: "true"
rules:
  - apiGroups: [""]
    resources: ["configmaps"]
    verbs: ["*"]
"#;

#[test]
fn aggregated_rights_bound_what_the_controller_composes() {
    let server = Server::start_with(&["--compose", "--compose-rights", "aggregation"]);
    server.eventually(&["get", "crd", "resourcegraphdefinitions.kro.run"], |text| text.contains("kro.run"));
    let account = "--as=system:serviceaccount:kube-system:resource-graph-definition-controller";
    let (allowed, _) = server.run(&["auth", "can-i", "create", "secrets", account], "");
    assert!(!allowed, "it is no administrator");
    server.with_input(&["apply", "-f", "-"], DEFINITION);
    server.eventually(&["get", "rgd", "pair"], |text| text.contains("Active"));
    server.with_input(&["apply", "-f", "-"], INSTANCE);
    server.eventually(&["get", "pair", "one", "-o", "yaml"], |text| {
        text.contains("state: ERROR")
            && text.contains("resource-graph-definition-controller")
            && text.contains("nextRetryTime")
    });
    server.with_input(&["apply", "-f", "-"], GRANT);
    server.eventually(&["get", "pair", "one"], |text| text.contains("ACTIVE"));
    assert_eq!(server.kubectl(&["get", "configmap", "one", "-o", "jsonpath={.data.value}"]), "x");
}

#[test]
fn graphs_are_drawn_and_checked_without_a_cluster() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/compose/web-app.yaml");
    let file = file.to_str().expect("a path");
    assert!(compose(&["validate", "-f", file]).contains("Validation successful!"));
    let svg = compose(&["graph", "-f", file, "--format", "svg"]);
    assert!(
        svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>") && svg.contains(">settings</text>"),
        "{svg}"
    );
    assert!(compose(&["graph", "-f", file, "--format", "dot"]).starts_with("digraph"));
}
