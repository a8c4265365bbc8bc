//! Probes over TCP, gRPC and HTTP, and by commands.

use crate::cluster::cluster;

#[test]
fn tcp_probes_follow_the_port() {
    let cluster = cluster(&[]);
    let program = r#"
import os, socket, time
def listen():
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((os.environ["POD_IP"], 8080))
    server.listen()
    return server
while not os.path.exists("/tmp/open"):
    time.sleep(0.02)
server = listen()
while not os.path.exists("/tmp/close"):
    time.sleep(0.02)
server.close()
time.sleep(1234)
"#;
    let probe = |failures: u32| serde_json::json!({"tcpSocket": {"port": 8080}, "periodSeconds": 1, "failureThreshold": failures});
    let manifest = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "c", "image": "local/python3", "command": ["python3", "-c", program],
            "startupProbe": probe(1000), "readinessProbe": probe(1), "livenessProbe": probe(2)}]}});
    cluster.create(&manifest.to_string());
    cluster.wait_for("p", ".status.containerStatuses[0].started", "false");
    cluster.kubectl(&["exec", "p", "--", "touch", "/tmp/open"]);
    cluster.ready("p");
    assert_eq!(cluster.field("p", ".status.containerStatuses[0].started"), "true");
    cluster.kubectl(&["exec", "p", "--", "touch", "/tmp/close"]);
    cluster.wait_for("p", ".status.containerStatuses[0].restartCount", "1");
    let events = cluster.events("Unhealthy");
    assert!(events.contains("Liveness probe failed: dial tcp 127."), "{events}");
    assert!(events.contains(":8080: connect: connection refused"), "{events}");
    let killed = cluster.events("Killing");
    assert!(killed.contains("Container c failed liveness probe, will be restarted"), "{killed}");
}

#[test]
fn grpc_probe_asks_the_health_service() {
    let program = env!("CARGO_BIN_EXE_orlop");
    let cluster = cluster(&["--image", &format!("orlop={program}")]);
    let pod = |name: &str, service: &str| {
        serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
            "containers": [{"name": "c", "image": "orlop",
                "args": ["etcd", "--listen-address", "$(POD_IP):2379", "--endpoint", "memory"],
                "env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
                "readinessProbe": {"grpc": {"port": 2379, "service": service}, "periodSeconds": 1}}]}})
        .to_string()
    };
    cluster.create(&pod("healthy", ""));
    cluster.create(&pod("unknown", "no.such.Service"));
    cluster.ready("healthy");
    cluster.eventually(&["get", "events", "-o", "jsonpath={.items[*].message}"], |events| {
        events.contains("Readiness probe failed: error: health rpc failed")
    });
    assert_eq!(cluster.field("unknown", ".status.containerStatuses[0].ready"), "false");
}

#[test]
fn command_of_a_probe_that_times_out_is_ended() {
    let cluster = cluster(&[]);
    let spec = "{containers: [{name: c, image: local/sh, command: [sleep, '1234'], \
        livenessProbe: {exec: {command: [sleep, '4321']}, timeoutSeconds: 1, periodSeconds: 1, failureThreshold: 1000}}]}";
    cluster.create(&format!("{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {spec}}}"));
    let count = ["get", "events", "--field-selector=reason=Unhealthy", "-o", "jsonpath={.items[0].count}"];
    cluster.eventually(&count, |count| count.parse::<u32>().is_ok_and(|count| count >= 3));
    let events = cluster.events("Unhealthy");
    assert!(events.contains("Liveness probe failed: command timed out"), "{events}");
    let probes = cluster.processes().iter().filter(|command| command.contains("4321")).count();
    assert!(probes <= 1, "{:?}", cluster.processes());
}
