//! Metrics of nodes and pods, and what follows from them.

use crate::{cluster::cluster, support::daemon::Daemon};

#[test]
fn use_of_cpu_is_shown_and_scales() {
    let cluster = cluster(&[]);
    cluster.create(
        r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: busy}
spec:
  selector: {matchLabels: {app: busy}}
  template:
    metadata: {labels: {app: busy}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: c
        image: local/sh
        command: [nice, '-n', '19', sh, -c, 'while :; do :; done']
        resources: {requests: {cpu: 1m}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: busy}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: busy}
  minReplicas: 1
  maxReplicas: 2
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]
"#,
    );
    cluster.kubectl(&[
        "wait",
        "--for=condition=Available",
        "apiservice/v1beta1.metrics.k8s.io",
        "--timeout=60s",
    ]);
    cluster.eventually(&["top", "pods", "--containers", "--no-headers"], |said| {
        let words: Vec<&str> = said.split_whitespace().collect();
        words.first().is_some_and(|name| name.starts_with("busy-")) && words.get(1) == Some(&"c")
    });
    let nodes = cluster.kubectl(&["top", "nodes", "--no-headers"]);
    assert!(nodes.starts_with("n1 "), "{nodes}");
    let replicas = ["get", "deployment", "busy", "-o", "jsonpath={.spec.replicas}"];
    cluster.eventually(&replicas, |found| found == "2");
    let shown = cluster.kubectl(&["get", "hpa", "busy", "--no-headers"]);
    assert!(shown.contains("%/50%"), "{shown}");
    let summary = cluster.kubectl(&["get", "--raw", "/api/v1/nodes/n1/proxy/stats/summary"]);
    assert!(summary.contains("\"nodeName\":\"n1\"") && summary.contains("usageCoreNanoSeconds"), "{summary}");
    // Discovery of an API that is gone would keep namespaces from their end.
    cluster.kubectl(&["delete", "deployment", "busy", "--timeout=60s"]);
    cluster.kubectl(&["create", "namespace", "short"]);
    cluster.kubectl(&["delete", "namespace", "short", "--timeout=60s"]);
}

#[test]
fn metrics_are_served_through_a_rotation_of_the_front_proxy_ca() {
    const CAS: &str = r"jsonpath={.data.requestheader-client-ca-file}";
    let folder = tempfile::tempdir().expect("a folder");
    let daemon = Daemon::start(&folder.path().join("data"), &["--node", "--node-name", "n1"]);
    let metrics = ["get", "--raw", "/apis/metrics.k8s.io/v1beta1/nodes"];
    daemon.eventually(&metrics, |said| said.contains("NodeMetricsList"));
    for (step, cas) in [(1, 2), (2, 2), (3, 1)] {
        assert!(daemon.rotate("front-proxy-ca").contains(&format!("Step {step} of 3")));
        let published =
            ["get", "configmap", "-n", "kube-system", "extension-apiserver-authentication", "-o", CAS];
        daemon.eventually(&published, |said| said.matches("BEGIN CERTIFICATE").count() == cas);
        daemon.eventually(&metrics, |said| said.contains("NodeMetricsList"));
    }
    daemon.stop();
}
