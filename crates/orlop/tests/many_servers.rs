//! Several servers of one cluster on one PostgreSQL database.

#![allow(clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::{
    path::Path,
    time::{Duration, Instant},
};

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

/// Waits until kubectl says what is wanted. Returns the time that took.
#[track_caller]
fn eventually(server: &Daemon, arguments: &[&str], wanted: impl Fn(&str) -> bool) -> Duration {
    let began = Instant::now();
    loop {
        let (_, said) = server.kubectl_with(&server.kubeconfig(), arguments);
        if wanted(&said) {
            return began.elapsed();
        }
        assert!(began.elapsed() < Duration::from_secs(120), "kubectl {arguments:?} still says: {said}");
        std::thread::sleep(Duration::from_millis(50));
    }
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
    eventually(&first, &[&published[..], &["name"]].concat(), |said| said == "configmap/kube-root-ca.crt");
    let published_at = version(&first);

    for (server, kubeconfig) in [(&first, second.kubeconfig()), (&second, first.kubeconfig())] {
        let (success, who) = server.kubectl_with(&kubeconfig, &WHOAMI);
        assert!(success && who == "kubernetes-admin", "a client certificate of the other: {who}");
        let token = ["--context", "orlop-token"];
        let (success, who) = server.kubectl_with(&first.kubeconfig(), &[&token[..], &WHOAMI].concat());
        assert!(success && who == "kubernetes-admin", "the administrator's token: {who}");
    }
    eventually(&first, &["get", "serviceaccount", "default", "-o", "name"], |said| said.contains("default"));
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
        eventually(server, &map, |said| said == "configmap/kube-root-ca.crt");
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
    eventually(&first, &["get", "serviceaccounts", "-o", "name"], |said| said == "serviceaccount/default");
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
    let took = eventually(&second, &lease, |said| !said.is_empty() && said != leader);
    assert!(took < Duration::from_secs(10), "it took {took:?}");
    second.kubectl(&["create", "namespace", "one"]);
    let account = |namespace: &'static str| ["-n", namespace, "get", "serviceaccount", "-o", "name"];
    eventually(&second, &account("one"), |said| said == "serviceaccount/default");

    // A server that is killed keeps its leases until they expire.
    let third = join(&directory("third"), &url, &directory("first"));
    assert!(!is_leader(&third));
    second.kill();
    third.kubectl(&["create", "namespace", "two"]);
    let took = eventually(&third, &account("two"), |said| said == "serviceaccount/default");
    println!("took over {took:?} after a kill");
    assert!(is_leader(&third));
    third.kubectl(&["delete", "namespace", "one", "two"]);
}
