//! Several servers of one cluster on one PostgreSQL database.

#![allow(clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::{path::Path, process::Command, time::Duration};

use orlop_testbed::Cluster;
use support::daemon::Daemon;

const WHOAMI: [&str; 4] = ["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"];
const LEASE: &str = "orlop-serviceaccount-controller";

fn database() -> String {
    let cluster = Cluster::shared().expect("PostgreSQL");
    cluster.url(&cluster.create_database().expect("a database"))
}

/// Starts a server of the cluster at `url`, with the key of another server's data directory.
#[track_caller]
fn join(data_dir: &Path, url: &str, key_of: &Path) -> Daemon {
    let key = key_of.join("cluster.key").display().to_string();
    Daemon::start(data_dir, &["--endpoint", url, "--cluster-key-file", &key])
}

fn holder(server: &Daemon) -> String {
    server.kubectl(&["-n", "kube-system", "get", "lease", LEASE, "-o", "jsonpath={.spec.holderIdentity}"])
}

#[test]
fn servers_of_one_cluster_accept_each_others_credentials() {
    let (folder, url) = (tempfile::tempdir().expect("a folder"), database());
    let directory = |name: &str| folder.path().join(name);
    let first = Daemon::start(&directory("first"), &["--endpoint", &url]);
    assert!(first.screen.contains("--cluster-key-file cluster.key"), "{}", first.screen);

    let said = Daemon::refused(&directory("second"), &["--endpoint", &url]);
    assert!(said.contains("cluster.key does not exist") && said.contains("copy cluster.key"), "{said}");
    assert!(!directory("second").join("kubeconfig").exists(), "nothing is left behind");
    let other = Daemon::start(&directory("other"), &[]);
    let wrong = directory("other").join("cluster.key").display().to_string();
    let said = Daemon::refused(&directory("second"), &["--endpoint", &url, "--cluster-key-file", &wrong]);
    assert!(said.contains(&wrong) && said.contains("is not the key of this cluster"), "{said}");
    other.stop();

    let second = join(&directory("second"), &url, &directory("first"));
    let published = ["get", "configmap", "kube-root-ca.crt", "-o"];
    let version = |server: &Daemon| {
        server.kubectl(&[&published[..], &["jsonpath={.metadata.resourceVersion}"]].concat())
    };
    first.eventually(&[&published[..], &["name"]].concat(), |said| said == "configmap/kube-root-ca.crt");
    let published_at = version(&first);

    for (server, kubeconfig) in [(&first, second.kubeconfig()), (&second, first.kubeconfig())] {
        let (success, who) = server.kubectl_with(&kubeconfig, &WHOAMI);
        assert!(success && who == "kubernetes-admin", "a client certificate of the other: {who}");
        let token = ["--context", "orlop-token"];
        let (success, who) = server.kubectl_with(&first.kubeconfig(), &[&token[..], &WHOAMI].concat());
        assert!(success && who == "kubernetes-admin", "the administrator's token: {who}");
    }
    first.eventually(&["get", "serviceaccount", "default", "-o", "name"], |said| said.contains("default"));
    for (issuer, verifier) in [(&first, &second), (&second, &first)] {
        let token = issuer.kubectl(&["create", "token", "default"]);
        let review = serde_json::json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": {"token": token}});
        let user = ["create", "-f", "-", "-o", "jsonpath={.status.user.username}"];
        let who = verifier.with_input(&user, &review.to_string());
        assert_eq!(who, "system:serviceaccount:default:default");
    }

    // Controllers have been at work, through both servers, and the root CA has been written once.
    for (server, namespace) in [(&first, "one"), (&second, "two")] {
        server.kubectl(&["create", "namespace", namespace]);
        let map = ["-n", namespace, "get", "configmap", "kube-root-ca.crt", "-o", "name"];
        server.eventually(&map, |said| said == "configmap/kube-root-ca.crt");
    }
    assert_eq!(version(&second), published_at);
}

#[test]
fn of_servers_that_create_a_cluster_at_once_one_does() {
    let (folder, url) = (tempfile::tempdir().expect("a folder"), database());
    let directories = ["first", "second"].map(|name| folder.path().join(name));
    let starting = directories.clone().map(|directory| {
        let url = url.clone();
        std::thread::spawn(move || Daemon::try_start(&directory, &["--endpoint", &url]))
    });
    let started = starting.map(|thread| thread.join().expect("it ends"));
    let (winner, loser) = match &started {
        [Some(_), None] => (&directories[0], &directories[1]),
        [None, Some(_)] => (&directories[1], &directories[0]),
        _ => panic!("{} servers created the cluster", started.iter().flatten().count()),
    };
    for name in ["cluster.key", "pki/admin.token", "kubeconfig"] {
        assert!(winner.join(name).exists() && !loser.join(name).exists(), "{name}");
    }
    let joined = join(loser, &url, winner);
    assert_eq!(joined.kubectl(&WHOAMI), "kubernetes-admin");
}

#[test]
fn controllers_run_on_one_server_and_move_to_another_when_it_stops() {
    let (folder, url) = (tempfile::tempdir().expect("a folder"), database());
    let directory = |name: &str| folder.path().join(name);
    let first = Daemon::start(&directory("first"), &["--endpoint", &url]);
    first.eventually(&["get", "serviceaccounts", "-o", "name"], |said| said == "serviceaccount/default");
    let leader = holder(&first);
    let second = join(&directory("second"), &url, &directory("first"));
    let is_leader = |server: &Daemon| {
        let metrics = server.kubectl(&["get", "--raw", "/metrics"]);
        let line = "leader_election_master_status{name=\"serviceaccount-controller\"} 1";
        assert!(metrics.contains("workqueue_depth{name=\"serviceaccount-controller\"}"), "{metrics}");
        metrics.lines().any(|found| found == line)
    };
    assert!(is_leader(&first) && !is_leader(&second));
    assert_eq!(holder(&second), leader);

    // A server that stops in an orderly way frees its leases: nobody has to wait for them to expire.
    first.stop();
    let lease = ["-n", "kube-system", "get", "lease", LEASE, "-o", "jsonpath={.spec.holderIdentity}"];
    let took = second.eventually(&lease, |said| !said.is_empty() && said != leader);
    assert!(took < Duration::from_secs(10), "it took {took:?}");
    second.kubectl(&["create", "namespace", "one"]);
    let account = |namespace: &'static str| ["-n", namespace, "get", "serviceaccount", "-o", "name"];
    second.eventually(&account("one"), |said| said == "serviceaccount/default");

    // A server that is killed keeps its leases until they expire.
    let third = join(&directory("third"), &url, &directory("first"));
    assert!(!is_leader(&third));
    second.kill();
    third.kubectl(&["create", "namespace", "two"]);
    let took = third.eventually(&account("two"), |said| said == "serviceaccount/default");
    println!("took over {took:?} after a kill");
    assert!(is_leader(&third));
    third.kubectl(&["delete", "namespace", "one", "two"]);
}

/// Returns the status of reading the namespaces with a token.
fn status_of(server: &Daemon, token: &str) -> bool {
    // Without the administrator's certificate the token is all that authenticates.
    let kubeconfig = server.data_dir.join("token.kubeconfig");
    let (cluster, ca) = (server.url(), server.data_dir.join("pki/ca.crt").display().to_string());
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
         clusters: [{{name: a, cluster: {{server: '{cluster}', certificate-authority: '{ca}'}}}}]\n\
         users: [{{name: a, user: {{token: '{token}'}}}}]\n"
    );
    std::fs::write(&kubeconfig, text).expect("written");
    server.kubectl_with(&kubeconfig, &WHOAMI).0
}

#[test]
fn deleted_credentials_are_refused_by_all_servers() {
    let (folder, url) = (tempfile::tempdir().expect("a folder"), database());
    let directory = |name: &str| folder.path().join(name);
    let first = Daemon::start(&directory("first"), &["--endpoint", &url]);
    let second = join(&directory("second"), &url, &directory("first"));
    first.kubectl(&["create", "serviceaccount", "builder"]);
    let bound = first.kubectl(&["create", "token", "builder"]);
    let secret = serde_json::json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "legacy", "annotations": {"kubernetes.io/service-account.name": "builder"}}});
    first.with_input(&["create", "-f", "-"], &secret.to_string());
    let content = ["get", "secret", "legacy", "-o", "go-template={{.data.token | base64decode}}"];
    second.eventually(&content, |said| said.starts_with("ey"));
    let legacy = second.kubectl(&content);
    for token in [&bound, &legacy] {
        // Both have seen it, and may have cached that it is good.
        assert!(status_of(&first, token) && status_of(&second, token));
    }
    let refused = |server: &Daemon, token: &str| {
        let began = std::time::Instant::now();
        while status_of(server, token) {
            assert!(began.elapsed() < Duration::from_secs(60), "the token is still accepted");
        }
    };
    first.kubectl(&["delete", "secret", "legacy"]);
    assert!(!status_of(&first, &legacy), "at once where it was deleted");
    refused(&second, &legacy);
    assert!(status_of(&second, &bound), "the other token is not concerned");
    second.kubectl(&["delete", "serviceaccount", "builder"]);
    assert!(!status_of(&second, &bound), "at once where it was deleted");
    refused(&first, &bound);
}

#[test]
fn keys_are_rotated_on_all_servers_without_a_restart() {
    let (folder, url) = (tempfile::tempdir().expect("a folder"), database());
    let directory = |name: &str| folder.path().join(name);
    let first = Daemon::start(&directory("first"), &["--endpoint", &url]);
    let second = join(&directory("second"), &url, &directory("first"));
    second.eventually(&["get", "serviceaccounts", "-o", "name"], |said| said == "serviceaccount/default");
    let servers = [&first, &second];
    let key = directory("first").join("cluster.key").display().to_string();
    let old_token = first.kubectl(&["create", "token", "default", "--duration", "2h"]);
    for step in 1..=3 {
        let keys = if step == 3 { 1 } else { 2 };
        for rotated in ["ca", "service-account-key", "front-proxy-ca"] {
            let rotate = ["rotate", rotated, "--endpoint", &url, "--cluster-key-file", &key];
            let output = Command::new(env!("CARGO_BIN_EXE_orlop")).args(rotate).output().expect("orlop runs");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        for server in servers {
            let published = ["get", "--raw", "/openid/v1/jwks"];
            server.eventually(&published, |said| said.matches("\"kid\"").count() == keys);
            let cas = || std::fs::read_to_string(server.data_dir.join("pki/ca.crt")).unwrap_or_default();
            server.eventually(&["version"], |_| cas().matches("BEGIN CERTIFICATE").count() == keys);
        }
        // Credentials of each are good at the other, at every step.
        for (server, other) in [(&first, &second), (&second, &first)] {
            let (success, who) = server.kubectl_with(&other.kubeconfig(), &WHOAMI);
            assert!(success && who == "kubernetes-admin", "step {step}: {who}");
            let token = server.kubectl(&["create", "token", "default"]);
            assert!(status_of(other, &token), "step {step}: a new token");
            assert_eq!(status_of(other, &old_token), step < 3, "step {step}: the old token");
        }
    }
}
