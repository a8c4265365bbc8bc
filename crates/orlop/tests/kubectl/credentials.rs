//! Credentials: tokens, certificates, impersonation, and the commands that hand them out.

use std::{fs, path::Path, process::Command};

use crate::{
    kinds::base64,
    support::{Server, kubectl, run_kubectl},
};

/// Runs kubectl with another kubeconfig. Returns whether it succeeded, and its output.
fn kubectl_as(kubeconfig: &Path, arguments: &[&str]) -> (bool, String) {
    run_kubectl(&kubectl(), kubeconfig, arguments, "", &[])
}

fn orlop(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_orlop")).args(arguments).output().expect("orlop runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).trim().to_owned())
}

/// Returns a kubeconfig of the server's with another user, as YAML.
fn kubeconfig_with(server: &Server, folder: &Path, user: &str) -> std::path::PathBuf {
    let own =
        fs::read_to_string(server.ready()["kubeconfig"].as_str().expect("a path")).expect("a kubeconfig");
    let (head, _) = own.split_once("users:").expect("users");
    let path = folder.join("kubeconfig");
    fs::write(&path, format!("{head}users:\n- name: admin\n  user: {user}\n")).expect("written");
    path
}

#[test]
fn tokens_of_service_accounts_authenticate_until_they_are_revoked() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a folder");
    server.kubectl(&["create", "serviceaccount", "builder"]);
    let token = server.kubectl(&["create", "token", "builder", "--duration", "20m"]);
    let as_builder = kubeconfig_with(&server, folder.path(), &format!("{{token: {token}}}"));
    let (known, who) = kubectl_as(&as_builder, &["auth", "whoami"]);
    assert!(known && who.contains("system:serviceaccount:default:builder") && who.contains("JTI="), "{who}");
    server.kubectl(&["delete", "serviceaccount", "builder"]);
    let (known, refused) = kubectl_as(&as_builder, &["auth", "whoami"]);
    assert!(!known && refused.contains("Unauthorized"), "{refused}");
}

#[test]
fn secrets_of_service_accounts_are_filled_with_a_token() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a folder");
    server.kubectl(&["create", "serviceaccount", "builder"]);
    let secret = "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/service-account-token\nmetadata:\n  name: legacy\n  \
                  annotations: {kubernetes.io/service-account.name: builder}\n";
    server.with_input(&["apply", "-f", "-"], secret);
    let token = ["get", "secret", "legacy", "-o", "go-template={{.data.token | base64decode}}"];
    server.eventually(&token, |token| token.starts_with("ey"));
    let as_builder =
        kubeconfig_with(&server, folder.path(), &format!("{{token: {}}}", server.kubectl(&token)));
    let (known, who) = kubectl_as(&as_builder, &["auth", "whoami"]);
    assert!(known && who.contains("system:serviceaccount:default:builder"), "{who}");
    server.kubectl(&["delete", "serviceaccount", "builder"]);
    server.eventually(&["get", "secret", "legacy"], |output| output.contains("NotFound"));
    assert!(!kubectl_as(&as_builder, &["auth", "whoami"]).0);
}

#[test]
fn approved_certificates_are_signed_and_authenticate() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a folder");
    let output = folder.path().join("ann");
    let own = server.ready()["kubeconfig"].as_str().expect("a path");
    let add = ["user", "add", "ann", "--group", "dev", "--group", "ops", "--kubeconfig", own, "--output"];
    let (added, said) = orlop(&[&add[..], &[output.to_str().expect("a path")]].concat());
    assert!(added, "{said}");
    let (known, who) = kubectl_as(&output, &["auth", "whoami"]);
    assert!(known && who.contains("ann") && who.contains("[dev ops system:authenticated]"), "{who}");
    let (may, refused) = kubectl_as(&output, &["get", "pods"]);
    assert!(!may && refused.contains("User \"ann\" cannot list resource \"pods\""), "{refused}");
    server.kubectl(&["create", "rolebinding", "dev", "--clusterrole=view", "--group=dev"]);
    assert!(kubectl_as(&output, &["get", "pods"]).0);
    // By hand, as anybody would.
    let request = rcgen::CertificateParams::default();
    let key = rcgen::KeyPair::generate().expect("a key");
    let request = request.serialize_request(&key).expect("a request").pem().expect("PEM");
    let manifest = serde_json::json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "bob"},
        "spec": {"request": base64(&request), "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["client auth"]},
    });
    server.with_input(&["create", "-f", "-"], &manifest.to_string());
    server.kubectl(&["certificate", "approve", "bob"]);
    let certificate = ["get", "csr", "bob", "-o", "go-template={{.status.certificate | base64decode}}"];
    server.eventually(&certificate, |output| output.contains("BEGIN CERTIFICATE"));
}

#[test]
fn kubelet_certificates_are_approved_for_nodes_that_may_have_them() {
    let server = Server::start();
    let bind = |name: &str, role: &str| {
        let role = format!("--clusterrole={role}");
        server.kubectl(&["create", "clusterrolebinding", name, &role, "--group=system:bootstrappers"]);
    };
    let ask = |name: &str| {
        let mut request = rcgen::CertificateParams::default();
        request.distinguished_name.push(rcgen::DnType::OrganizationName, "system:nodes");
        request.distinguished_name.push(rcgen::DnType::CommonName, format!("system:node:{name}"));
        let key = rcgen::KeyPair::generate().expect("a key");
        let request = request.serialize_request(&key).expect("a request").pem().expect("PEM");
        let manifest = serde_json::json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
            "spec": {"request": base64(&request), "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
                "usages": ["digital signature", "client auth"]},
        });
        let node = ["--as", "system:bootstrap:abcdef", "--as-group", "system:bootstrappers"];
        server.with_input(&[&["create", "-f", "-"], &node[..]].concat(), &manifest.to_string());
    };
    bind("join", "system:node-bootstrapper");
    ask("stranger");
    bind("approve", "system:certificates.k8s.io:certificatesigningrequests:nodeclient");
    ask("one");
    let certificate = ["get", "csr", "one", "-o", "go-template={{.status.certificate | base64decode}}"];
    server.eventually(&certificate, |output| output.contains("BEGIN CERTIFICATE"));
    let condition = |name: &str, field: &str| {
        server.kubectl(&["get", "csr", name, "-o", &format!("jsonpath={{.status.conditions[0].{field}}}")])
    };
    assert_eq!(condition("one", "reason"), "AutoApproved");
    let message = "Auto approving kubelet client certificate after SubjectAccessReview.";
    assert_eq!(condition("one", "message"), message);
    assert_eq!(condition("stranger", "reason"), "", "left to an administrator");
}

#[test]
fn users_are_impersonated_by_permission_only() {
    let server = Server::start();
    let who = server.kubectl(&["auth", "whoami", "--as", "bob", "--as-group", "dev", "--as-uid", "u-1"]);
    assert!(
        who.contains("bob") && who.contains("[dev system:authenticated]") && who.contains("u-1"),
        "{who}"
    );
    let refused = server.refused(&["get", "pods", "--as", "bob"], "");
    assert!(refused.contains("User \"bob\" cannot list resource \"pods\""), "{refused}");
    server.kubectl(&["create", "serviceaccount", "proxy"]);
    let folder = tempfile::tempdir().expect("a folder");
    let token = server.kubectl(&["create", "token", "proxy"]);
    let proxy = kubeconfig_with(&server, folder.path(), &format!("{{token: {token}}}"));
    let (may, refused) = kubectl_as(&proxy, &["get", "--raw", "/api/v1/pods", "--as", "bob"]);
    assert!(!may && refused.contains("cannot impersonate-on:user-info:list"), "{refused}");
    server.kubectl(&[
        "create",
        "clusterrole",
        "be-bob",
        "--verb=impersonate",
        "--resource=users",
        "--resource-name=bob",
    ]);
    let account = "--serviceaccount=default:proxy";
    server.kubectl(&["create", "clusterrolebinding", "be-bob", "--clusterrole=be-bob", account]);
    let (may, who) = kubectl_as(&proxy, &["auth", "whoami", "--as", "bob"]);
    assert!(may && who.contains("bob"), "{who}");
    assert!(!kubectl_as(&proxy, &["auth", "whoami", "--as", "alice"]).0);
    assert!(!kubectl_as(&proxy, &["auth", "whoami", "--as", "bob", "--as-group", "system:masters"]).0);

    // Constrained: who may be carol, only to list pods, and only where carol may.
    let role = r#"{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "be-carol"},
        "rules": [{"apiGroups": ["authentication.k8s.io"], "resources": ["users"], "resourceNames": ["carol"],
            "verbs": ["impersonate:user-info"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["impersonate-on:user-info:list"]}]}"#;
    server.with_input(&["create", "-f", "-"], role);
    server.kubectl(&["create", "clusterrolebinding", "be-carol", "--clusterrole=be-carol", account]);
    server.eventually(&["get", "clusterrole", "view", "-o", "yaml"], |said| said.contains("configmaps"));
    server.kubectl(&["create", "rolebinding", "carol", "--clusterrole=view", "--user=carol"]);
    let read = |path: &str| kubectl_as(&proxy, &["get", "--raw", path, "--as", "carol"]);
    let (may, pods) = read("/api/v1/namespaces/default/pods");
    assert!(may && pods.contains("PodList"), "{pods}");
    for refused in ["/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/pods/x"] {
        let (may, said) = read(refused);
        assert!(!may && said.contains("cannot impersonate"), "{refused}: {said}");
    }
    let (may, said) = read("/api/v1/namespaces/kube-system/pods");
    assert!(!may && said.contains("User \"carol\" cannot list resource \"pods\""), "{said}");
}

#[test]
fn token_files_and_bootstrap_tokens_authenticate_where_they_are_enabled() {
    let folder = tempfile::tempdir().expect("a folder");
    let tokens = folder.path().join("tokens.csv");
    fs::write(&tokens, "s3cret,ann,u-7,\"dev,ops\"\n").expect("written");
    let status = Command::new("chmod").arg("600").arg(&tokens).status().expect("chmod");
    assert!(status.success());
    let tokens = tokens.to_str().expect("a path");
    let server = Server::start_with(&["--token-auth-file", tokens, "--enable-bootstrap-token-auth"]);
    let ann = kubeconfig_with(&server, folder.path(), "{token: s3cret}");
    let (known, who) = kubectl_as(&ann, &["auth", "whoami"]);
    assert!(known && who.contains("u-7") && who.contains("[dev ops system:authenticated]"), "{who}");
    let secret = "apiVersion: v1\nkind: Secret\ntype: bootstrap.kubernetes.io/token\nmetadata: {name: \
                  bootstrap-token-abcdef, namespace: kube-system}\nstringData: {token-id: abcdef, token-secret: \
                  0123456789abcdef, usage-bootstrap-authentication: \"true\"}\n";
    server.with_input(&["apply", "-f", "-"], secret);
    let node = kubeconfig_with(&server, folder.path(), "{token: abcdef.0123456789abcdef}");
    let (known, who) = kubectl_as(&node, &["auth", "whoami"]);
    assert!(
        known && who.contains("system:bootstrap:abcdef") && who.contains("system:bootstrappers"),
        "{who}"
    );
    server.kubectl(&["-n", "kube-system", "delete", "secret", "bootstrap-token-abcdef"]);
    assert!(!kubectl_as(&node, &["auth", "whoami"]).0);
}

#[test]
fn commands_hand_out_tokens_and_kubeconfigs() {
    let server = Server::start();
    let own = server.ready()["kubeconfig"].as_str().expect("a path");
    server.kubectl(&["create", "serviceaccount", "builder"]);
    let (created, token) = orlop(&["token", "create", "builder", "--kubeconfig", own, "--duration", "15m"]);
    assert!(created && token.starts_with("ey"), "{token}");
    let (created, refused) = orlop(&["token", "create", "nobody", "--kubeconfig", own]);
    assert!(!created && refused.contains("serviceaccounts \"nobody\" not found"), "{refused}");
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("config");
    let (copied, said) =
        orlop(&["kubeconfig", "--kubeconfig", own, "--output", copy.to_str().expect("a path")]);
    assert!(copied, "{said}");
    assert!(kubectl_as(&copy, &["get", "namespaces"]).0);
    let (_, printed) = orlop(&["kubeconfig", "--kubeconfig", own, "--server", "https://api.example.org"]);
    assert!(printed.contains("server: https://api.example.org"), "{printed}");
}
