//! Static pods: manifests of the node, which the API only shows.

use crate::cluster::cluster;

#[test]
fn static_pod_runs_whatever_happens_to_its_mirror() {
    let folder = tempfile::tempdir().expect("a folder");
    let manifest = |text: &str| {
        let spec = format!(
            "{{containers: [{{name: c, image: local/sh, command: [sh, -c, 'echo {text}; sleep 1234']}}]}}"
        );
        let yaml = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: agent, labels: {{app: agent}}}}\nspec: {spec}\n"
        );
        std::fs::write(folder.path().join("agent.yaml"), yaml).expect("a manifest");
    };
    manifest("first");
    let cluster = cluster(&["--pod-manifest-path", &folder.path().display().to_string()]);
    cluster.eventually(&["get", "pod", "agent-n1", "-o", "jsonpath={.status.phase}"], |found| {
        found == "Running"
    });
    assert_eq!(cluster.field("agent-n1", ".metadata.ownerReferences[0].kind"), "Node");
    assert_eq!(cluster.field("agent-n1", ".metadata.annotations.kubernetes\\.io/config\\.source"), "file");
    assert_eq!(cluster.kubectl(&["logs", "agent-n1"]), "first");
    assert_eq!(cluster.kubectl(&["exec", "agent-n1", "--", "echo", "there"]), "there");
    let before = cluster.processes();
    let uid = cluster.field("agent-n1", ".metadata.uid");

    // The process goes on, and the API shows it again.
    cluster.kubectl(&["delete", "pod", "agent-n1", "--timeout=60s"]);
    let again = ["get", "pod", "agent-n1", "-o", "jsonpath={.metadata.uid} {.status.phase}"];
    cluster.eventually(&again, |found| found.ends_with(" Running") && !found.starts_with(&uid));
    assert_eq!(cluster.processes(), before);
    cluster.kubectl(&["drain", "n1", "--timeout=60s"]);
    assert_eq!(cluster.processes(), before);

    manifest("second");
    cluster.eventually(&["logs", "agent-n1"], |log| log == "second");
    std::fs::remove_file(folder.path().join("agent.yaml")).expect("removed");
    cluster.eventually(&["get", "pods", "-o", "name"], str::is_empty);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !cluster.processes().is_empty() {
        assert!(std::time::Instant::now() < deadline, "{:?}", cluster.processes());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
