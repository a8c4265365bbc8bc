//! Workloads that act: `--controllers=*`, with a stand-in for the kubelets.

use crate::support::{Server, kubelet::Kubelets};

fn cluster(nodes: &[&str]) -> (Server, Kubelets) {
    let server = Server::start_with(&["--controllers=*"]);
    let kubelets = Kubelets::start(&server, nodes);
    (server, kubelets)
}

fn roll_out(server: &Server, workload: &str) -> String {
    server.kubectl(&["rollout", "status", workload, "--timeout=60s"])
}

#[test]
fn deployment_is_rolled_out_updated_undone_and_scaled() {
    let (server, _kubelets) = cluster(&["node-1"]);
    server.kubectl(&["create", "deployment", "web", "--image=local/one", "--replicas=3", "--port=80"]);
    let said = roll_out(&server, "deployment/web");
    assert!(said.ends_with("deployment \"web\" successfully rolled out"), "{said}");
    server.kubectl(&["wait", "--for=condition=Available", "deployment/web", "--timeout=60s"]);
    server.kubectl(&["expose", "deployment", "web"]);
    let addresses = [
        "get",
        "endpointslices",
        "-l",
        "kubernetes.io/service-name=web",
        "-o",
        "jsonpath={.items[*].endpoints[*].addresses[0]}",
    ];
    server.eventually(&addresses, |said| said.split_whitespace().count() == 3);

    server.kubectl(&["set", "image", "deployment/web", "one=local/two"]);
    roll_out(&server, "deployment/web");
    let history = server.kubectl(&["rollout", "history", "deployment/web"]);
    let revisions: Vec<&str> = history.lines().skip(2).filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(revisions, ["1", "2"], "{history}");
    server.kubectl(&["rollout", "undo", "deployment/web"]);
    roll_out(&server, "deployment/web");
    let image = "jsonpath={.spec.template.spec.containers[0].image}";
    assert_eq!(server.kubectl(&["get", "deployment", "web", "-o", image]), "local/one");
    server.kubectl(&["rollout", "restart", "deployment/web"]);
    roll_out(&server, "deployment/web");
    server.kubectl(&["rollout", "pause", "deployment/web"]);
    server.kubectl(&["scale", "deployment/web", "--replicas=5"]);
    server.kubectl(&["wait", "--for=jsonpath={.status.readyReplicas}=5", "deployment/web", "--timeout=60s"]);
    server.kubectl(&["rollout", "resume", "deployment/web"]);
    roll_out(&server, "deployment/web");

    let described = server.kubectl(&["describe", "deployment", "web"]);
    assert!(
        described.contains("NewReplicaSetAvailable") && described.contains("ScalingReplicaSet"),
        "{described}"
    );
    let pod = server.kubectl(&["get", "pods", "-l", "app=web", "-o", "jsonpath={.items[0].metadata.name}"]);
    let described = server.kubectl(&["describe", "pod", &pod]);
    assert!(described.contains(&format!("Successfully assigned default/{pod} to node-1")), "{described}");
    server.kubectl(&["delete", "deployment", "web"]);
    server.eventually(&["get", "pods", "-l", "app=web", "-o", "name"], str::is_empty);
}

#[test]
fn drain_moves_pods_and_honours_the_budget() {
    let (server, _kubelets) = cluster(&["node-1", "node-2"]);
    server.kubectl(&["create", "deployment", "web", "--image=local/one", "--replicas=4"]);
    roll_out(&server, "deployment/web");
    server.kubectl(&["create", "pdb", "web", "--selector=app=web", "--max-unavailable=1"]);
    let allowed = ["get", "pdb", "web", "-o", "jsonpath={.status.disruptionsAllowed}"];
    server.eventually(&allowed, |said| said == "1");
    let said = server.kubectl(&["drain", "node-1", "--timeout=60s"]);
    // Of the two pods of a node one has to wait for the other: kubectl says so on stderr.
    assert!(said.contains("node/node-1 drained"), "{said}");
    roll_out(&server, "deployment/web");
    let nodes = ["get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].spec.nodeName}"];
    server.eventually(&nodes, |said| said == "node-2 node-2 node-2 node-2");
    server.kubectl(&["uncordon", "node-1"]);
    server.kubectl(&["scale", "deployment/web", "--replicas=8"]);
    server.eventually(&nodes, |said| said.contains("node-1"));
}

#[test]
fn jobs_stateful_and_daemon_sets_run() {
    let (server, _kubelets) = cluster(&["node-1", "node-2"]);
    server.kubectl(&["create", "job", "sum", "--image=local/task"]);
    let wait = ["wait", "--for=condition=complete", "job/sum", "--timeout=60s"];
    assert_eq!(server.kubectl(&wait), "job.batch/sum condition met");
    server.kubectl(&["create", "cronjob", "nightly", "--image=local/task", "--schedule=0 3 * * *"]);
    server.kubectl(&["create", "job", "now", "--from=cronjob/nightly"]);
    server.kubectl(&["wait", "--for=condition=complete", "job/now", "--timeout=60s"]);

    let sets = "apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: main, image: local/one}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: main, image: local/one}]}
";
    server.with_input(&["apply", "-f", "-"], sets);
    let said = roll_out(&server, "statefulset/db");
    assert!(
        said.contains("statefulset rolling update complete 2 pods") || said.contains("roll out complete"),
        "{said}"
    );
    let said = roll_out(&server, "daemonset/agent");
    assert!(said.ends_with("daemon set \"agent\" successfully rolled out"), "{said}");
    server.kubectl(&["set", "image", "statefulset/db", "main=local/two"]);
    roll_out(&server, "statefulset/db");
    server.kubectl(&["rollout", "undo", "statefulset/db"]);
    roll_out(&server, "statefulset/db");
    let images = ["get", "pods", "-l", "app=db", "-o", "jsonpath={.items[*].spec.containers[0].image}"];
    server.eventually(&images, |said| said == "local/one local/one");
    // A node that was still tainted when the set was rolled out gets its pod once it is not.
    let daemons = ["get", "pods", "-l", "app=agent", "--no-headers"];
    server.eventually(&daemons, |said| said.lines().filter(|line| line.contains("Running")).count() == 2);
}

#[test]
fn pod_without_a_node_says_why_it_waits() {
    let server = Server::start_with(&["--controllers=*"]);
    server.kubectl(&["run", "lonely", "--image=local/one"]);
    let events =
        ["get", "events", "--field-selector=reason=FailedScheduling", "-o", "jsonpath={.items[*].message}"];
    server.eventually(&events, |said| said == "no nodes available to schedule pods");
    let table = server.kubectl(&["get", "pod", "lonely", "--no-headers"]);
    assert!(table.contains("Pending"), "{table}");
}
