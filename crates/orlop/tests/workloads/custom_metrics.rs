//! HorizontalPodAutoscalers on custom and external metrics, which an adapter in a pod serves through an APIService.

use serde_json::{Value, json};

use crate::cluster::{Cluster, cluster};

const ADAPTER: &str = include_str!("adapter.py");
const CUSTOM: &str = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default";
const EXTERNAL: &str = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default";

/// Starts the adapter, and registers it for both groups.
fn start_adapter(cluster: &Cluster) {
    let folder = tempfile::tempdir().expect("a folder");
    let pair = rcgen::generate_simple_self_signed(["adapter.default.svc".to_owned()]).expect("a certificate");
    let [certificate, key] = ["tls.crt", "tls.key"].map(|name| folder.path().join(name));
    std::fs::write(&certificate, pair.cert.pem()).expect("a file");
    std::fs::write(&key, pair.signing_key.serialize_pem()).expect("a file");
    let [certificate, key] =
        [("cert", certificate), ("key", key)].map(|(name, path)| format!("--{name}={}", path.display()));
    cluster.kubectl(&["create", "secret", "tls", "adapter", &certificate, &key]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "adapter", "labels": {"app": "adapter"}},
        "spec": {"terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "image": "local/python3", "command": ["python3", "-c", ADAPTER],
                "readinessProbe": {"tcpSocket": {"port": 6443}, "periodSeconds": 1},
                "volumeMounts": [{"name": "tls", "mountPath": "/tls"}, {"name": "data", "mountPath": "/data"}]}],
            "volumes": [{"name": "tls", "secret": {"secretName": "adapter"}}, {"name": "data", "emptyDir": {}}]}});
    cluster.with_input(&["create", "-f", "-"], &pod.to_string());
    cluster.ready("adapter");
    cluster.kubectl(&["expose", "pod", "adapter", "--port=443", "--target-port=6443"]);
    for (group, version) in [("custom.metrics.k8s.io", "v1beta2"), ("external.metrics.k8s.io", "v1beta1")] {
        let service = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": format!("{version}.{group}")},
            "spec": {"group": group, "version": version, "groupPriorityMinimum": 100, "versionPriority": 100,
                "insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": "adapter", "port": 443}}});
        cluster.with_input(&["create", "-f", "-"], &service.to_string());
        let name = format!("apiservice/{version}.{group}");
        cluster.kubectl(&["wait", "--for=condition=Available", &name, "--timeout=120s"]);
    }
}

fn create_deployment(cluster: &Cluster, name: &str) -> String {
    cluster.kubectl(&["create", "deployment", name, "--image=local/sleep", "--", "sleep", "1234"]);
    cluster.kubectl(&["rollout", "status", &format!("deployment/{name}"), "--timeout=120s"]);
    let selector = format!("app={name}");
    cluster.kubectl(&["get", "pods", "-l", &selector, "-o", "jsonpath={.items[0].metadata.name}"])
}

fn autoscaler(name: &str, metric: &Value) -> String {
    json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name},
        "spec": {"minReplicas": 1, "maxReplicas": 4, "metrics": [metric],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}}})
    .to_string()
}

fn of_object(kind: &str, name: &str, value: &str) -> Value {
    json!({"describedObject": {"kind": kind, "namespace": "default", "name": name, "apiVersion": "/v1"},
        "metric": {"name": "queue"}, "timestamp": "2026-01-01T00:00:00Z", "value": value})
}

fn of_anything(labels: &Value, value: &str) -> Value {
    json!({"metricName": "orders", "metricLabels": labels, "timestamp": "2026-01-01T00:00:00Z", "value": value})
}

#[test]
fn replicas_follow_custom_and_external_metrics() {
    let cluster = cluster(&[]);
    start_adapter(&cluster);
    let set = |values: &Value| {
        let write = [
            "exec",
            "-i",
            "adapter",
            "--",
            "sh",
            "-c",
            "cat > $ORLOP_ROOT/data/new; mv $ORLOP_ROOT/data/new $ORLOP_ROOT/data/values",
        ];
        cluster.with_input(&write, &values.to_string());
    };
    let replicas = |name: &str, wanted: &str| {
        let path = ["get", "deployment", name, "-o", "jsonpath={.spec.replicas}"];
        cluster.eventually(&path, |found| found == wanted);
    };
    let metric = |name: &str, path: &str| {
        cluster.kubectl(&[
            "get",
            "hpa",
            name,
            "-o",
            &format!("jsonpath={{.status.currentMetrics[0].{path}}}"),
        ])
    };
    let pod = create_deployment(&cluster, "per-pod");
    create_deployment(&cluster, "per-object");
    create_deployment(&cluster, "per-order");
    let mut values = json!({
        format!("{CUSTOM}/pods/*/queue"): [of_object("Pod", &pod, "30")],
        format!("{CUSTOM}/services/adapter/queue"): [of_object("Service", "adapter", "2500m")],
        format!("{EXTERNAL}/orders"): [of_anything(&json!({"shop": "a"}), "25"), of_anything(&json!({"shop": "b"}), "15")],
    });
    set(&values);
    let queue = json!({"name": "queue"});
    let of_pods = json!({"type": "Pods", "pods": {"metric": queue, "target": {"type": "AverageValue", "averageValue": "10"}}});
    let of_service = json!({"type": "Object", "object": {"metric": queue,
        "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "adapter"},
        "target": {"type": "Value", "value": "1250m"}}});
    let of_orders = json!({"type": "External", "external": {"metric": {"name": "orders", "selector": {"matchLabels": {"kind": "open"}}},
        "target": {"type": "AverageValue", "averageValue": "10"}}});
    for (name, metric) in [("per-pod", of_pods), ("per-object", of_service), ("per-order", of_orders)] {
        cluster.with_input(&["create", "-f", "-"], &autoscaler(name, &metric));
    }
    replicas("per-pod", "3");
    // The value does not fall as replicas grow: twice the target doubles them until the limit.
    replicas("per-object", "4");
    replicas("per-order", "4");
    let asked = cluster.kubectl(&["logs", "adapter"]);
    assert!(asked.contains("/pods/*/queue?labelSelector="), "{asked}");
    assert!(asked.contains("/orders?labelSelector="), "{asked}");
    cluster
        .eventually(&["get", "hpa", "per-pod", "-o", "jsonpath={.status.currentMetrics[0].type}"], |kind| {
            kind == "Pods"
        });
    assert_eq!(metric("per-object", "object.current.value"), "2500m");
    assert_eq!(metric("per-order", "external.metric.name"), "orders");
    cluster.kubectl(&["wait", "--for=condition=ScalingActive", "hpa/per-order", "--timeout=60s"]);

    // Fewer orders than before, and none from an adapter that does not know the metric.
    values[format!("{EXTERNAL}/orders")] = json!([of_anything(&json!({"shop": "a"}), "20")]);
    values[format!("{CUSTOM}/services/adapter/queue")] = Value::Null;
    set(&values);
    replicas("per-order", "2");
    cluster.kubectl(&["wait", "--for=condition=ScalingActive=False", "hpa/per-object", "--timeout=60s"]);
    let described = cluster.kubectl(&["describe", "hpa", "per-object"]);
    assert!(described.contains("FailedGetObjectMetric"), "{described}");
    replicas("per-object", "4");
    cluster.kubectl(&[
        "delete",
        "apiservice",
        "v1beta2.custom.metrics.k8s.io",
        "v1beta1.external.metrics.k8s.io",
    ]);
}
