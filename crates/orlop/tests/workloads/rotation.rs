//! Nodes that are processes of their own, while the CA of their cluster is replaced.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use crate::{
    cluster::pod,
    joined::{NodeProcess, joining_kubeconfig},
    support::daemon::Daemon,
};

/// Returns a field of a kubeconfig.
fn field(kubeconfig: &Path, name: &str) -> String {
    let text = fs::read_to_string(kubeconfig).expect("a kubeconfig");
    text.lines().find_map(|line| line.trim().strip_prefix(name)).expect("the field").trim().to_owned()
}

/// Waits until a field of a kubeconfig has another value.
#[track_caller]
fn changed(kubeconfig: &Path, name: &str, from: &str) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while field(kubeconfig, name) == from {
        assert!(Instant::now() < deadline, "{name} of {} stays", kubeconfig.display());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Runs a pod on a node, and reads its log through the API server.
#[track_caller]
fn run(daemon: &Daemon, name: &str, node: &str) {
    let command = "command: [sh, -c, 'echo started; sleep 1234']";
    let spec = format!("{{nodeName: {node}, containers: [{{name: c, image: local/sh, {command}}}]}}");
    daemon.with_input(&["create", "-f", "-"], &pod(name, &spec));
    daemon.kubectl(&["wait", "--for=condition=Ready", &format!("pod/{name}"), "--timeout=60s"]);
    daemon.eventually(&["logs", name], |said| said == "started");
}

#[test]
fn nodes_follow_a_rotation_of_the_ca_without_a_restart() {
    const CA: &str = "certificate-authority-data:";
    const CERTIFICATE: &str = "client-certificate-data:";
    let folder = tempfile::tempdir().expect("a folder");
    let number = std::process::id() % 30;
    let services = format!("127.{}.0.0/20", 192 + number);
    let options =
        ["--controllers=*", "--enable-bootstrap-token-auth", "--service-cluster-ip-range", services.as_str()];
    let daemon = Daemon::start(&folder.path().join("server"), &options);
    let bootstrap = joining_kubeconfig(&daemon, folder.path()).display().to_string();
    // As kubeadm lets nodes renew their certificates.
    let role = "--clusterrole=system:certificates.k8s.io:certificatesigningrequests:selfnodeclient";
    daemon.kubectl(&["create", "clusterrolebinding", "renew", role, "--group=system:nodes"]);

    let data_dirs = ["joined", "given"].map(|name| folder.path().join(name));
    let [joined_dir, given_dir] = data_dirs.clone().map(|path| path.display().to_string());
    let ranges = [0, 1].map(|index| format!("127.{}.0.0/20", 64 + 2 * number + index));
    let kubeconfig = daemon.kubeconfig().display().to_string();
    let joined = NodeProcess::start(&[
        "--bootstrap-kubeconfig",
        &bootstrap,
        "--rotate-server-certificates",
        "--data-dir",
        &joined_dir,
        "--node-name",
        "joined",
        "--pod-range",
        &ranges[0],
    ]);
    let given = NodeProcess::start(&[
        "--kubeconfig",
        &kubeconfig,
        "--data-dir",
        &given_dir,
        "--node-name",
        "given",
        "--pod-range",
        &ranges[1],
    ]);
    daemon.eventually(&["get", "nodes", "--no-headers"], |said| {
        said.lines().filter(|line| line.contains(" Ready ")).count() == 2
    });
    let requests =
        ["get", "csr", "--field-selector=spec.signerName=kubernetes.io/kubelet-serving", "-o", "name"];
    daemon.eventually(&requests, |said| said.lines().count() == 1);
    let request = daemon.kubectl(&requests);
    daemon.kubectl(&["certificate", "approve", request.rsplit('/').next().expect("a name")]);

    let own = data_dirs[0].join("kubeconfig");
    let first_certificate = field(&own, CERTIFICATE);
    for step in 1..=3 {
        let (trusted, certificate) = (field(&own, CA), field(&own, CERTIFICATE));
        assert!(daemon.rotate("ca").contains(&format!("Step {step} of 3")));
        changed(&own, CA, &trusted);
        if step == 2 {
            changed(&own, CERTIFICATE, &certificate);
            // Its serving certificate is to be of the new CA too.
            daemon.eventually(&requests, |said| said.lines().count() == 2);
        }
        for node in ["joined", "given"] {
            run(&daemon, &format!("{node}-{step}"), node);
            daemon.eventually(&["logs", &format!("{node}-1")], |said| said == "started");
        }
    }
    assert_ne!(field(&own, CERTIFICATE), first_certificate);
    assert_eq!(field(&own, CA), field(&daemon.kubeconfig(), CA));
    let ready = ["get", "nodes", "--no-headers"];
    assert_eq!(daemon.kubectl(&ready).matches(" Ready ").count(), 2, "{}", daemon.kubectl(&ready));
    daemon.kubectl(&["delete", "pods", "--all", "--timeout=60s"]);
    joined.stop();
    given.stop();
}
