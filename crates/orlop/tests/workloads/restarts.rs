//! Nodes that are killed and come back.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use crate::{
    cluster::{container_processes, pod},
    joined::{NodeProcess, joining_kubeconfig},
    support::daemon::Daemon,
};

#[test]
fn killed_node_takes_its_containers_up_again_and_leaves_none_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let data_dir = folder.path().join("data");
    let options = ["--node", "--node-name", "n1"];
    let daemon = Daemon::start(&data_dir, &options);
    let unique = format!("4{}", std::process::id());
    let spec = format!(
        "{{containers: [{{name: c, image: local/sh, command: [sh, -c, 'echo started; sleep {unique}']}}]}}"
    );
    daemon.with_input(&["create", "-f", "-"], &pod("p", &spec));
    daemon.kubectl(&["wait", "--for=condition=Ready", "pod/p", "--timeout=60s"]);
    let processes = || {
        let listed = Command::new("pgrep").args(["-f", &format!("sleep {unique}")]).output().expect("pgrep");
        String::from_utf8_lossy(&listed.stdout).lines().filter(|line| !line.is_empty()).count()
    };
    let before = processes();
    assert!(before > 0);
    let id = ["get", "pod", "p", "-o", "jsonpath={.status.containerStatuses[0].containerID}"];
    let container = daemon.kubectl(&id);
    daemon.kill();
    assert_eq!(processes(), before);
    let daemon = Daemon::start(&data_dir, &options);
    daemon.kubectl(&["wait", "--for=condition=Ready", "pod/p", "--timeout=60s"]);
    assert_eq!(daemon.kubectl(&["exec", "p", "--", "echo", "again"]), "again");
    assert_eq!(daemon.kubectl(&id), container);
    assert_eq!(daemon.kubectl(&["logs", "p"]), "started");
    assert_eq!(processes(), before);
    daemon.stop();
    assert_eq!(processes(), 0);
}

#[test]
fn node_joins_with_a_bootstrap_token_and_is_killed_and_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let number = std::process::id() % 60;
    let (services, pods) = (format!("127.{}.0.0/20", 190 + number), format!("127.{}.0.0/20", 64 + number));
    let daemon = Daemon::start(
        &folder.path().join("server"),
        &[
            "--controllers=*",
            "--enable-bootstrap-token-auth",
            "--kubelet-certificate-authority",
            "cluster",
            "--service-cluster-ip-range",
            &services,
        ],
    );
    let mark = format!("KUBERNETES_SERVICE_HOST=127.{}.0.1", 190 + number);
    let bootstrap = joining_kubeconfig(&daemon, folder.path());
    let (bootstrap, data_dir) =
        (bootstrap.display().to_string(), folder.path().join("node").display().to_string());
    let options = [
        "--bootstrap-kubeconfig",
        &bootstrap,
        "--data-dir",
        &data_dir,
        "--node-name",
        "n2",
        "--pod-range",
        &pods,
        "--rotate-server-certificates",
    ];
    let node = NodeProcess::start(&options);
    daemon.eventually(&["get", "nodes", "--no-headers"], |said| {
        said.starts_with("n2 ") && said.contains(" Ready ")
    });
    daemon.kubectl(&["delete", "clusterrolebinding", "join", "approve"]);
    let spec = "{containers: [{name: c, image: local/sh, command: [sh, -c, 'echo started; sleep 1234']}]}";
    for name in ["stays", "goes"] {
        daemon.with_input(&["create", "-f", "-"], &pod(name, spec));
        daemon.kubectl(&["wait", "--for=condition=Ready", &format!("pod/{name}"), "--timeout=60s"]);
    }

    // The API server trusts the node once the cluster has signed its certificate.
    let (success, refused) = daemon.run_kubectl(&daemon.kubeconfig(), &["logs", "stays"], "");
    assert!(!success && refused.contains("certificate"), "{refused}");
    let open = ["get", "csr", "--field-selector=spec.signerName=kubernetes.io/kubelet-serving", "-o", "name"];
    daemon.eventually(&open, |said| !said.is_empty());
    let request = daemon.kubectl(&open);
    daemon.kubectl(&[
        "certificate",
        "approve",
        request.trim_start_matches("certificatesigningrequest.certificates.k8s.io/"),
    ]);
    daemon.eventually(&["logs", "stays"], |said| said == "started");

    let before = container_processes(&mark);
    assert!(before.len() >= 2, "{before:?}");
    let id = ["get", "pod", "stays", "-o", "jsonpath={.status.containerStatuses[0].containerID}"];
    let container = daemon.kubectl(&id);
    node.kill();
    assert_eq!(container_processes(&mark), before);
    // A pod that is deleted while its node is away is ended when the node is back.
    daemon.kubectl(&["delete", "pod", "goes", "--force", "--grace-period=0"]);
    let node = NodeProcess::start(&options);
    let deadline = Instant::now() + Duration::from_secs(60);
    while container_processes(&mark).len() >= before.len() {
        assert!(Instant::now() < deadline, "{:?}", container_processes(&mark));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(daemon.kubectl(&id), container);
    assert_eq!(
        daemon.kubectl(&[
            "get",
            "pod",
            "stays",
            "-o",
            "jsonpath={.status.containerStatuses[0].restartCount}"
        ]),
        "0"
    );
    daemon.kubectl(&["delete", "pod", "stays", "--timeout=60s"]);
    node.stop();
    assert_eq!(container_processes(&mark), Vec::<String>::new());
}
