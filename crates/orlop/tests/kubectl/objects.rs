//! Lifecycle of objects.

use crate::support::Server;

#[test]
fn new_cluster_has_the_system_objects() {
    let server = Server::start();
    for namespace in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        let account = ["-n", namespace, "get", "serviceaccount", "default", "-o", "name"];
        server.eventually(&account, |output| output == "serviceaccount/default");
        let certificate = ["-n", namespace, "get", "configmap", "kube-root-ca.crt", "-o", "jsonpath={.data}"];
        server.eventually(&certificate, |output| output.contains("BEGIN CERTIFICATE"));
    }
    let address = server.kubectl(&["get", "service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}"]);
    assert_eq!(address, "10.0.0.1");
    assert!(server.kubectl(&["version"]).contains("Server Version: v1."));
    assert_eq!(server.kubectl(&["get", "--raw", "/readyz"]), "ok");
    // And it is created again when it is deleted.
    server.kubectl(&["delete", "service", "kubernetes"]);
    let address = ["get", "service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}"];
    server.eventually(&address, |output| output == "10.0.0.1");
}

#[test]
fn objects_are_created_read_updated_and_deleted() {
    let server = Server::start();
    server.kubectl(&["create", "configmap", "a", "--from-literal=x=y"]);
    assert_eq!(server.kubectl(&["get", "configmap", "a", "-o", "jsonpath={.data.x}"]), "y");
    let again = server.refused(&["create", "configmap", "a"], "");
    assert!(again.contains("configmaps \"a\" already exists"), "{again}");
    server.kubectl(&["label", "configmap", "a", "app=web"]);
    server.kubectl(&["annotate", "configmap", "a", "note=one"]);
    server.kubectl(&[
        "patch",
        "configmap",
        "a",
        "--type=json",
        "-p",
        r#"[{"op":"add","path":"/data/z","value":"1"}]"#,
    ]);
    server.kubectl(&["patch", "configmap", "a", "--type=merge", "-p", r#"{"data":{"x":null}}"#]);
    server.kubectl(&["patch", "configmap", "a", "-p", r#"{"data":{"w":"2"}}"#]);
    let data = server.kubectl(&["get", "configmap", "a", "-o", "jsonpath={.data}"]);
    assert_eq!(data, r#"{"w":"2","z":"1"}"#);
    assert_eq!(server.kubectl(&["get", "configmap", "-l", "app in (web,db)", "-o", "name"]), "configmap/a");
    assert_eq!(server.kubectl(&["get", "configmap", "-l", "app=db", "-o", "name"]), "");
    let by_field = ["get", "configmap", "-A", "--field-selector", "metadata.name=a", "-o", "name"];
    assert_eq!(server.kubectl(&by_field), "configmap/a");
    let unknown = server.refused(&["get", "configmap", "--field-selector", "data.x=1"], "");
    assert!(unknown.contains("is not a known field selector"), "{unknown}");
    server.kubectl(&["delete", "configmap", "a"]);
    let missing = server.refused(&["get", "configmap", "a"], "");
    assert!(missing.contains("Error from server (NotFound): configmaps \"a\" not found"), "{missing}");
}

#[test]
fn no_op_write_keeps_the_resource_version() {
    let server = Server::start();
    server.kubectl(&["create", "configmap", "a", "--from-literal=x=y"]);
    let version = ["get", "configmap", "a", "-o", "jsonpath={.metadata.resourceVersion}"];
    let before = server.kubectl(&version);
    server.kubectl(&["patch", "configmap", "a", "--type=merge", "-p", r#"{"data":{"x":"y"}}"#]);
    assert_eq!(server.kubectl(&version), before);
    let dry = ["patch", "configmap", "a", "--type=merge", "-p", r#"{"data":{"x":"z"}}"#, "--dry-run=server"];
    server.kubectl(&dry);
    assert_eq!(server.kubectl(&version), before);
}

#[test]
fn apply_sets_field_ownership() {
    let server = Server::start();
    let map = |replicas: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: shared}}\ndata: {{replicas: \"{replicas}\"}}\n"
        )
    };
    let apply = |manager: &'static str| {
        ["apply", "--server-side", "--validate=false", "--field-manager", manager, "-f", "-"]
    };
    server.with_input(&apply("one"), &map("1"));
    let conflict = server.refused(&apply("two"), &map("2"));
    assert!(
        conflict.contains("Apply failed with 1 conflict: conflict with \"one\": .data.replicas"),
        "{conflict}"
    );
    let mut forced = apply("two").to_vec();
    forced.push("--force-conflicts");
    server.with_input(&forced, &map("2"));
    let data = server.kubectl(&["get", "configmap", "shared", "-o", "jsonpath={.data.replicas}"]);
    assert_eq!(data, "2");
    let managers = [
        "get",
        "configmap",
        "shared",
        "--show-managed-fields",
        "-o",
        "jsonpath={.metadata.managedFields[*].manager}",
    ];
    assert_eq!(server.kubectl(&managers), "two");
}

#[test]
fn dependents_are_garbage_collected() {
    let server = Server::start();
    for (cascade, left) in [("foreground", ""), ("background", ""), ("orphan", "secret/child")] {
        server.kubectl(&["create", "configmap", "owner"]);
        let uid = server.kubectl(&["get", "configmap", "owner", "-o", "jsonpath={.metadata.uid}"]);
        let child = format!(
            "apiVersion: v1\nkind: Secret\nmetadata:\n  name: child\n  ownerReferences:\n  - apiVersion: v1\n    \
             kind: ConfigMap\n    name: owner\n    uid: {uid}\n    blockOwnerDeletion: true\n"
        );
        server.with_input(&["create", "--validate=false", "-f", "-"], &child);
        server.kubectl(&["delete", "configmap", "owner", &format!("--cascade={cascade}")]);
        server.eventually(&["get", "secrets", "-o", "name"], |output| output == left);
    }
    let owners = server.kubectl(&["get", "secret", "child", "-o", "jsonpath={.metadata.ownerReferences}"]);
    assert_eq!(owners, "", "an orphan forgets its owner");
}

#[test]
fn namespace_deletion_deletes_its_content() {
    let server = Server::start();
    server.kubectl(&["create", "namespace", "demo"]);
    server.kubectl(&["-n", "demo", "create", "configmap", "a"]);
    server.kubectl(&["-n", "demo", "create", "secret", "generic", "b"]);
    server.kubectl(&["delete", "namespace", "demo"]);
    let gone = server.refused(&["-n", "demo", "create", "configmap", "c"], "");
    assert!(gone.contains("namespaces \"demo\" not found"), "{gone}");
    let standing = server.refused(&["delete", "namespace", "kube-system"], "");
    assert!(standing.contains("this namespace may not be deleted"), "{standing}");
}

#[test]
fn services_get_cluster_ips_and_node_ports() {
    let server = Server::start();
    server.kubectl(&["create", "service", "nodeport", "web", "--tcp=80:8080"]);
    let spec = |path: &str| server.kubectl(&["get", "service", "web", "-o", &format!("jsonpath={path}")]);
    let (address, port) = (spec("{.spec.clusterIP}"), spec("{.spec.ports[0].nodePort}"));
    assert!(address.starts_with("10.0."), "{address}");
    assert!((30000..=32767).contains(&port.parse::<u16>().expect("a port")), "{port}");
    let owner = ["get", "ipaddress", &address, "-o", "jsonpath={.spec.parentRef.name}"];
    assert_eq!(server.kubectl(&owner), "web");
    let taken = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: other}}\nspec: {{clusterIP: {address}, ports: [{{port: 80}}]}}\n"
    );
    let refused = server.refused(&["create", "--validate=false", "-f", "-"], &taken);
    assert!(refused.contains("provided IP is already allocated"), "{refused}");
    server.kubectl(&["delete", "service", "web"]);
    let missing = server.refused(&["get", "ipaddress", &address], "");
    assert!(missing.contains("not found"), "{missing}");
    server.with_input(&["create", "--validate=false", "-f", "-"], &taken);
}

#[test]
fn scale_and_token_subresources_work() {
    let server = Server::start();
    server.kubectl(&["create", "deployment", "web", "--image=nginx", "--replicas=2"]);
    server.kubectl(&["scale", "deployment", "web", "--replicas=5"]);
    let replicas = server.kubectl(&[
        "get",
        "deployment",
        "web",
        "-o",
        "jsonpath={.spec.replicas} {.metadata.generation}",
    ]);
    assert_eq!(replicas, "5 2");
    server.eventually(&["get", "serviceaccount", "default", "-o", "name"], |output| {
        output == "serviceaccount/default"
    });
    let token = server.kubectl(&["create", "token", "default"]);
    assert_eq!(token.split('.').count(), 3, "{token}");
    assert!(server.kubectl(&["auth", "whoami"]).contains("kubernetes-admin"));
}
