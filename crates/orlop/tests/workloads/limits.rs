//! Limits of memory and cpu.

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
