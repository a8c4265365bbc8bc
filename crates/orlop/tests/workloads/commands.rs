//! Commands of kubectl that act on workloads, each on both engines.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
};

use crate::{
    cluster::{Cluster, Engine, cluster_on, get, web_image},
    support,
};

#[test]
fn commands_of_kubectl_work_on_sqlite() {
    commands_work(Engine::Sqlite);
}

#[test]
fn commands_of_kubectl_work_on_postgresql() {
    commands_work(Engine::PostgreSql);
}

fn commands_work(engine: Engine) {
    let images = web_image();
    let cluster = cluster_on(engine, &["--images", &images.path().display().to_string()]);
    rollout(&cluster);
    let pod = cluster.kubectl(&["get", "pods", "-l", "app=web", "-o", "jsonpath={.items[0].metadata.name}"]);
    streams(&cluster, &pod);
    describe(&cluster, &pod);
    autoscale(&cluster);
    drain(&cluster);
    cluster.kubectl(&["delete", "deployment", "web", "--timeout=60s"]);
    cluster.kubectl(&["wait", "--for=delete", "pod", "-l", "app=web", "--timeout=60s"]);
    assert_eq!(cluster.processes(), Vec::<String>::new());
}

/// `create deployment`, `expose`, `scale`, `set`, `wait` and `rollout status|history|undo|restart|pause|resume`.
fn rollout(cluster: &Cluster) {
    let status = || cluster.kubectl(&["rollout", "status", "deployment/web", "--timeout=120s"]);
    cluster.kubectl(&["create", "deployment", "web", "--image=web", "--port=8080", "--replicas=2"]);
    let said = status();
    assert!(said.ends_with("deployment \"web\" successfully rolled out"), "{said}");
    cluster.kubectl(&["wait", "--for=condition=Available", "deployment/web", "--timeout=60s"]);
    cluster.kubectl(&["expose", "deployment", "web"]);
    let service = ["get", "service", "web", "-o", "jsonpath={.spec.clusterIP}:8080"];
    let service = cluster.kubectl(&service);
    let answers = |version: &str| {
        // Any answer of kubectl will do: the service proxy is asked beside it.
        cluster.eventually(&["get", "pods", "-o", "name"], |_| {
            get(&service).is_some_and(|answer| answer.starts_with(version))
        });
    };
    answers("1 ");
    cluster.kubectl(&["set", "env", "deployment/web", "VERSION=2"]);
    status();
    answers("2 ");
    let history = cluster.kubectl(&["rollout", "history", "deployment/web"]);
    let revisions: Vec<&str> = history.lines().skip(2).filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(revisions, ["1", "2"], "{history}");
    cluster.kubectl(&["rollout", "undo", "deployment/web"]);
    status();
    answers("1 ");
    cluster.kubectl(&["rollout", "pause", "deployment/web"]);
    cluster.kubectl(&["scale", "deployment/web", "--replicas=1"]);
    cluster.kubectl(&["rollout", "resume", "deployment/web"]);
    cluster.kubectl(&["rollout", "restart", "deployment/web"]);
    status();
    cluster.eventually(&["get", "pods", "-l", "app=web", "-o", "name"], |pods| pods.lines().count() == 1);
}

/// `logs`, `exec`, `attach`, `cp` and `port-forward`.
fn streams(cluster: &Cluster, web: &str) {
    let program = "echo begin; while read line; do echo heard $line; done; sleep 1234";
    let container = serde_json::json!({"name": "c", "image": "local/sh", "stdin": true, "command": ["sh", "-c", program]});
    let talk = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "talk"},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}});
    cluster.with_input(&["create", "-f", "-"], &talk.to_string());
    cluster.ready("talk");
    cluster.eventually(&["logs", "talk"], |log| log == "begin");
    let mut follow = start(cluster, &["logs", "-f", "talk"]);
    let mut attach = start(cluster, &["attach", "-i", "-q", "talk"]);
    let mut input = attach.stdin.take().expect("its input");
    input.write_all(b"one\n").expect("the input");
    let (mut attached, mut followed) = (lines(&mut attach), lines(&mut follow));
    assert!(attached.any(|line| line == "heard one"));
    assert!(followed.any(|line| line == "heard one"));
    for mut child in [attach, follow] {
        child.kill().expect("killed");
        child.wait().expect("it ends");
    }
    assert_eq!(cluster.kubectl(&["logs", "talk", "--tail=1"]), "heard one");
    assert_eq!(cluster.kubectl(&["logs", "talk", "--since=1h"]), "begin\nheard one");
    assert_eq!(cluster.with_input(&["exec", "-i", "talk", "--", "cat"], "through"), "through");
    let failed = cluster.refused(&["exec", "talk", "--", "sh", "-c", "exit 7"], "");
    assert!(failed.contains("command terminated with exit code 7"), "{failed}");

    let folder = tempfile::tempdir().expect("a folder");
    let [there, back] = ["there", "back"].map(|name| folder.path().join(name).display().to_string());
    std::fs::write(&there, "copied").expect("a file");
    let inside = format!("/tmp/orlop-commands-{}", std::process::id());
    cluster.kubectl(&["cp", &there, &format!("talk:{inside}")]);
    cluster.kubectl(&["cp", &format!("talk:{inside}"), &back]);
    assert_eq!(std::fs::read_to_string(&back).expect("a file"), "copied");
    cluster.kubectl(&["exec", "talk", "--", "rm", &inside]);
    cluster.kubectl(&["delete", "pod", "talk", "--timeout=60s"]);

    let mut forward = start(cluster, &["port-forward", &format!("pod/{web}"), ":8080"]);
    // Kept open: kubectl tells of every connection.
    let mut said = lines(&mut forward);
    let line = said.next().expect("a line");
    let port = line.split_once("127.0.0.1:").and_then(|(_, rest)| rest.split_once(' ')).expect("a port").0;
    let answer = get(&format!("127.0.0.1:{port}"));
    forward.kill().expect("killed");
    forward.wait().expect("it ends");
    assert_eq!(answer, Some(format!("1 {web}\n")));
}

fn describe(cluster: &Cluster, pod: &str) {
    let described = cluster.kubectl(&["describe", "deployment", "web"]);
    for part in ["NewReplicaSetAvailable", "ScalingReplicaSet", "MinimumReplicasAvailable"] {
        assert!(described.contains(part), "{part}: {described}");
    }
    let described = cluster.kubectl(&["describe", "pod", pod]);
    for part in [
        &*format!("Successfully assigned default/{pod} to n1"),
        "Container started",
        "State:          Running",
    ] {
        assert!(described.contains(part), "{part}: {described}");
    }
    let described = cluster.kubectl(&["describe", "node", "n1"]);
    for part in ["KubeletReady", "Allocated resources", pod] {
        assert!(described.contains(part), "{part}: {described}");
    }
}

fn autoscale(cluster: &Cluster) {
    cluster.kubectl(&["autoscale", "deployment", "web", "--min=2", "--max=3", "--cpu-percent=50"]);
    cluster.kubectl(&[
        "wait",
        "--for=jsonpath={.status.readyReplicas}=2",
        "deployment/web",
        "--timeout=120s",
    ]);
    let described = cluster.kubectl(&["describe", "hpa", "web"]);
    assert!(described.contains("Current number of replicas below Spec.MinReplicas"), "{described}");
    cluster.kubectl(&["delete", "hpa", "web"]);
}

/// `drain`, which moves pods off the node, and `uncordon`.
fn drain(cluster: &Cluster) {
    cluster.kubectl(&["create", "pdb", "web", "--selector=app=web", "--min-available=1"]);
    let allowed = ["get", "pdb", "web", "-o", "jsonpath={.status.disruptionsAllowed}"];
    cluster.eventually(&allowed, |said| said == "1");
    // Nowhere else can they run: the budget lets one go, and keeps the other.
    let stuck = cluster.refused(&["drain", "n1", "--timeout=3s"], "");
    assert!(stuck.contains("Cannot evict pod as it would violate the pod's disruption budget."), "{stuck}");
    cluster.kubectl(&["delete", "pdb", "web"]);
    let drained = cluster.kubectl(&["drain", "n1", "--timeout=60s"]);
    assert!(drained.contains("node/n1 drained"), "{drained}");
    cluster.eventually(&["get", "events", "-o", "jsonpath={.items[*].message}"], |said| {
        said.contains("0/1 nodes are available: 1 node(s) were unschedulable")
    });
    cluster.kubectl(&["uncordon", "n1"]);
    cluster.kubectl(&["rollout", "status", "deployment/web", "--timeout=120s"]);
}

fn start(cluster: &Cluster, arguments: &[&str]) -> std::process::Child {
    Command::new(support::kubectl())
        .arg("--kubeconfig")
        .arg(cluster.kubeconfig())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("kubectl")
}

fn lines(child: &mut std::process::Child) -> impl Iterator<Item = String> + use<> {
    BufReader::new(child.stdout.take().expect("its output")).lines().map(|line| line.expect("a line"))
}
