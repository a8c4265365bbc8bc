//! Rollouts. No workload controllers run here, so the test creates the ReplicaSets and the status that kubectl
//! reads.

use crate::support::Server;

fn web() -> Server {
    let server = Server::start();
    server.kubectl(&["create", "deployment", "web", "--image=nginx:1", "--replicas=2"]);
    server
}

/// Creates a ReplicaSet as the deployment controller would.
fn replica_set(server: &Server, revision: u32, image: &str) {
    let uid = server.kubectl(&["get", "deployment", "web", "-o", "jsonpath={.metadata.uid}"]);
    let yaml = format!(
        "apiVersion: apps/v1
kind: ReplicaSet
metadata:
  name: web-{revision}
  labels: {{app: web, pod-template-hash: h{revision}}}
  annotations: {{deployment.kubernetes.io/revision: \"{revision}\"}}
  ownerReferences:
  - {{apiVersion: apps/v1, kind: Deployment, name: web, uid: {uid}, controller: true}}
spec:
  replicas: 0
  selector: {{matchLabels: {{app: web, pod-template-hash: h{revision}}}}}
  template:
    metadata: {{labels: {{app: web, pod-template-hash: h{revision}}}}}
    spec: {{containers: [{{name: nginx, image: \"{image}\"}}]}}
"
    );
    server.with_input(&["create", "-f", "-"], &yaml);
    let current = format!("deployment.kubernetes.io/revision={revision}");
    server.kubectl(&["annotate", "--overwrite", "deployment", "web", &current]);
}

fn image(server: &Server) -> String {
    let path = "jsonpath={.spec.template.spec.containers[0].image}";
    server.kubectl(&["get", "deployment", "web", "-o", path])
}

#[test]
fn scale_honours_its_current_replicas_precondition() {
    let server = web();
    assert_eq!(server.kubectl(&["scale", "deployment", "web", "--replicas=3"]), "deployment.apps/web scaled");
    let wrong = ["scale", "deployment", "web", "--current-replicas=9", "--replicas=1"];
    assert_eq!(server.refused(&wrong, ""), "error: Expected replicas to be 9, was 3");
    server.kubectl(&["create", "deployment", "api", "--image=b"]);
    let both = ["scale", "--replicas=4", "deployment/web", "deployment/api"];
    assert_eq!(server.kubectl(&both), "deployment.apps/web scaled\ndeployment.apps/api scaled");
    let replicas = ["get", "deployments", "-o", "jsonpath={.items[*].spec.replicas}"];
    assert_eq!(server.kubectl(&replicas), "4 4");
    server.kubectl(&["autoscale", "deployment", "web", "--min=1", "--max=3", "--cpu-percent=50"]);
    let table = server.kubectl(&["get", "hpa", "web", "--no-headers"]);
    let columns: Vec<&str> = table.split("   ").map(str::trim).filter(|text| !text.is_empty()).collect();
    assert_eq!(columns[..6], ["web", "Deployment/web", "cpu: <unknown>/50%", "1", "3", "0"], "{table}");
}

#[test]
fn rollout_history_and_undo() {
    let server = web();
    assert_eq!(
        server.kubectl(&["rollout", "history", "deployment/web"]),
        "deployment.apps/web \nNo rollout history found."
    );
    replica_set(&server, 1, "nginx:1");
    server.kubectl(&["set", "image", "deployment/web", "nginx=nginx:2"]);
    replica_set(&server, 2, "nginx:2");
    let history = server.kubectl(&["rollout", "history", "deployment/web"]);
    let revisions: Vec<&str> = history.lines().skip(2).filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(revisions, ["1", "2"], "{history}");
    let one = server.kubectl(&["rollout", "history", "deployment/web", "--revision=1"]);
    assert!(one.contains("Image:\tnginx:1"), "{one}");
    assert_eq!(server.kubectl(&["rollout", "undo", "deployment/web"]), "deployment.apps/web rolled back");
    assert_eq!(image(&server), "nginx:1");
    let missing = server.refused(&["rollout", "undo", "deployment/web", "--to-revision=9"], "");
    assert_eq!(missing, "error: unable to find specified revision 9 in history");
}

#[test]
fn rollout_pause_restart_and_status() {
    let server = web();
    server.kubectl(&["rollout", "pause", "deployment/web"]);
    let again = server.refused(&["rollout", "pause", "deployment/web"], "");
    assert_eq!(again, "error: deployments.apps \"web\" is already paused");
    let refused = server.refused(&["rollout", "restart", "deployment/web"], "");
    assert!(refused.contains("can't restart paused deployment"), "{refused}");
    server.kubectl(&["rollout", "resume", "deployment/web"]);
    server.kubectl(&["rollout", "restart", "deployment/web"]);
    let restarted = r"jsonpath={.spec.template.metadata.annotations.kubectl\.kubernetes\.io/restartedAt}";
    assert!(!server.kubectl(&["get", "deployment", "web", "-o", restarted]).is_empty());

    let status = |watch: &str| server.kubectl(&["rollout", "status", "deployment/web", watch]);
    assert_eq!(status("--watch=false"), "Waiting for deployment spec update to be observed...");
    // kubectl follows while the status changes.
    std::thread::scope(|scope| {
        let following = scope.spawn(|| status("--timeout=20s"));
        for ready in [1, 2] {
            let done = format!(
                r#"{{"status":{{"observedGeneration":4,"replicas":2,"updatedReplicas":2,"readyReplicas":{ready},"availableReplicas":{ready}}}}}"#
            );
            server.kubectl(&[
                "patch",
                "deployment",
                "web",
                "--subresource=status",
                "--type=merge",
                "-p",
                &done,
            ]);
        }
        let followed = following.join().expect("kubectl");
        assert!(followed.ends_with("deployment \"web\" successfully rolled out"), "{followed}");
    });
    let available = r#"{"status":{"conditions":[{"type":"Available","status":"True"}]}}"#;
    server.kubectl(&["patch", "deployment", "web", "--subresource=status", "--type=merge", "-p", available]);
    let wait = ["wait", "--for=condition=Available", "deployment/web", "--timeout=20s"];
    assert_eq!(server.kubectl(&wait), "deployment.apps/web condition met");
}
