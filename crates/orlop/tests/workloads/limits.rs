//! Limits of memory, cpu and storage.

use crate::cluster::cluster;

#[test]
fn container_over_its_memory_limit_is_oom_killed() {
    let cluster = cluster(&[]);
    let program = "x = b'x' * (512 << 20); print(len(x))";
    let manifest = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "local/python3", "command": ["python3", "-c", program],
            "resources": {"limits": {"memory": "64Mi", "cpu": "500m"}}}]}});
    cluster.create(&manifest.to_string());
    cluster.eventually(&["get", "pod", "p", "-o", "jsonpath={.status.phase}"], |phase| {
        matches!(phase, "Succeeded" | "Failed")
    });
    let ignored = cluster.events("LimitsNotEnforced");
    if !ignored.is_empty() {
        assert!(ignored.starts_with("This node does not enforce limits of cpu and memory: "), "{ignored}");
        assert_eq!(cluster.field("p", ".status.phase"), "Succeeded");
        orlop_testbed::not_run::not_run(&ignored);
        return;
    }
    let ended = ".status.containerStatuses[0].state.terminated";
    assert_eq!(cluster.field("p", &format!("{ended}.reason")), "OOMKilled");
    assert_eq!(cluster.field("p", &format!("{ended}.exitCode")), "137");
    assert_eq!(cluster.field("p", ".status.phase"), "Failed");
}

#[test]
fn resources_of_a_running_container_change_in_place() {
    let cluster = cluster(&[]);
    let resources = |cpu: &str, memory: &str| {
        let limits = serde_json::json!({"cpu": "1", "memory": "256Mi"});
        serde_json::json!({"requests": {"cpu": cpu, "memory": memory}, "limits": limits})
    };
    let manifest = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
        "containers": [{"name": "c", "image": "local/sh", "command": ["sleep", "1234"],
            "resources": resources("100m", "64Mi")}]}});
    cluster.create(&manifest.to_string());
    cluster.ready("p");
    let resize = |cpu: &str, memory: &str| {
        let patch =
            serde_json::json!({"spec": {"containers": [{"name": "c", "resources": resources(cpu, memory)}]}});
        cluster.kubectl(&["patch", "pod", "p", "--subresource", "resize", "-p", &patch.to_string()]);
    };
    resize("200m", "128Mi");
    let given = ".status.containerStatuses[0]";
    cluster.wait_for("p", &format!("{given}.resources.requests.cpu"), "200m");
    cluster.wait_for("p", &format!("{given}.allocatedResources.memory"), "128Mi");
    assert_eq!(cluster.field("p", &format!("{given}.restartCount")), "0");
    let completed = r#"Pod resize completed: {"containers":[{"name":"c""#;
    cluster.eventually(&["get", "events", "-o", "jsonpath={.items[*].message}"], |events| {
        events.contains(completed)
    });
    let patch = r#"{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"9999"},"limits":{"cpu":"9999"}}}]}}"#;
    let refused = cluster.refused(&["patch", "pod", "p", "--subresource", "resize", "-p", patch], "");
    assert!(refused.contains("node didn't have enough allocatable resources: cpu"), "{refused}");
    assert_eq!(cluster.field("p", &format!("{given}.resources.requests.cpu")), "200m");
}

#[test]
fn pod_over_the_size_limit_of_a_volume_is_evicted() {
    let cluster = cluster(&[]);
    let fill = "dd if=/dev/zero of=${ORLOP_ROOT:-}/data/file bs=1024 count=2048; sleep 1234";
    let manifest = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
        "containers": [{"name": "c", "image": "local/sh", "command": ["sh", "-c", fill],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
        "volumes": [{"name": "data", "emptyDir": {"sizeLimit": "1Mi"}}]}});
    cluster.create(&manifest.to_string());
    cluster.wait_for("p", ".status.reason", "Evicted");
    assert_eq!(cluster.field("p", ".status.phase"), "Failed");
    let message = "Usage of EmptyDir volume \"data\" exceeds the limit \"1Mi\". ";
    assert_eq!(cluster.field("p", ".status.message"), message.trim());
    cluster.eventually(&["get", "events", "-o", "jsonpath={.items[*].message}"], |events| {
        events.contains(message.trim())
    });
}
