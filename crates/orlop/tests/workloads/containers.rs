//! Sidecars, and hooks of containers.

use std::time::{Duration, Instant};

use crate::cluster::cluster;

#[test]
fn sidecar_starts_first_is_restarted_and_ends_last() {
    let cluster = cluster(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().display();
    let report = |name: &str| {
        format!(
            "trap 'echo {name} ends >> /data/order; exit 0' TERM; echo {name} begins >> /data/order; while :; do sleep 0.02; done"
        )
    };
    let container = |name: &str, more: &str| {
        format!(
            "{{name: {name}, image: local/sh, command: [sh, -c, \"{}\"], volumeMounts: [{{name: data, mountPath: /data}}]{more}}}",
            report(name)
        )
    };
    let probe = ", restartPolicy: Always, startupProbe: {exec: {command: [grep, begins, /data/order]}, periodSeconds: 1}";
    let manifest = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {{initContainers: [{}, {}], containers: [{}], volumes: [{{name: data, hostPath: {{path: {path}}}}}]}}}}",
        container("one", probe),
        container("two", ", restartPolicy: Always"),
        container("main", ""),
    );
    cluster.create(&manifest);
    cluster.ready("p");
    let order = || std::fs::read_to_string(folder.path().join("order")).expect("the order");
    assert_eq!(order(), "one begins\ntwo begins\nmain begins\n");
    assert_eq!(cluster.field("p", ".status.initContainerStatuses[*].started"), "true true");

    // A sidecar that ends is restarted, whatever the main containers do.
    // The container may end before the command does, and the command with it.
    let _ = cluster.run(&["exec", "p", "-c", "two", "--", "sh", "-c", "kill -TERM 1"], "");
    cluster.wait_for("p", ".status.initContainerStatuses[1].restartCount", "1");
    assert_eq!(cluster.field("p", ".status.phase"), "Running");
    cluster.ready("p");
    cluster.kubectl(&["delete", "pod", "p", "--timeout=60s"]);
    assert!(order().ends_with("main ends\ntwo ends\none ends\n"), "{}", order());
}

#[test]
fn job_is_complete_when_only_its_sidecar_still_runs() {
    let cluster = cluster(&[]);
    let spec = "{restartPolicy: Never, \
        initContainers: [{name: side, image: local/sh, restartPolicy: Always, command: [sleep, '1234']}], \
        containers: [{name: main, image: local/sh, command: [sh, -c, 'exit 0']}]}";
    cluster.create(&format!(
        "{{apiVersion: batch/v1, kind: Job, metadata: {{name: j}}, spec: {{template: {{spec: {spec}}}}}}}"
    ));
    cluster.kubectl(&["wait", "--for=condition=complete", "job/j", "--timeout=60s"]);
    cluster.eventually(&["get", "pods", "-o", "jsonpath={.items[0].status.phase}"], |phase| {
        phase == "Succeeded"
    });
    assert!(cluster.processes().is_empty());
}

#[test]
fn post_start_hooks_run_before_a_container_is_ready() {
    let cluster = cluster(&[]);
    let pod = |name: &str, hook: &str| {
        format!(
            "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{restartPolicy: Never, containers: [{{name: c, image: local/sh, command: [sleep, '1234'], lifecycle: {{postStart: {hook}}}}}]}}}}\n"
        )
    };
    cluster.create(
        &[
            pod("command", "{exec: {command: [touch, /tmp/started]}}"),
            pod("sleeping", "{sleep: {seconds: 1}}"),
            pod("failing", "{exec: {command: [sh, -c, 'exit 5']}}"),
            pod("hanging", "{exec: {command: [sleep, '4321']}}"),
        ]
        .concat(),
    );
    cluster.ready("command");
    assert_eq!(cluster.kubectl(&["exec", "command", "--", "ls", "/tmp/started"]), "/tmp/started");
    cluster.ready("sleeping");
    cluster.wait_for("failing", ".status.phase", "Failed");
    assert_eq!(cluster.events("FailedPostStartHook"), "PostStartHook failed");
    // A hook that never ends keeps no pod from its deletion.
    cluster.wait_for("hanging", ".status.containerStatuses[0].ready", "false");
    let asked = Instant::now();
    cluster.kubectl(&["delete", "pod", "hanging", "--timeout=60s"]);
    assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
}

#[test]
fn pre_stop_hook_shares_the_grace_period() {
    let cluster = cluster(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().display();
    let pod = |name: &str, grace: u64, program: &str, hook: &str| {
        format!(
            "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{terminationGracePeriodSeconds: {grace}, volumes: [{{name: data, hostPath: {{path: {path}}}}}], containers: [{{name: c, image: local/sh, command: [sh, -c, \"{program}\"], volumeMounts: [{{name: data, mountPath: /data}}], lifecycle: {{preStop: {hook}}}}}]}}}}\n"
        )
    };
    let polite = |name: &str| {
        format!(
            "trap 'echo stopped >> /data/{name}; exit 0' TERM; touch /tmp/ready; while :; do sleep 0.02; done"
        )
    };
    cluster.create(
        &[
            pod(
                "orderly",
                30,
                &polite("orderly"),
                "{exec: {command: [sh, -c, 'echo hook >> /data/orderly']}}",
            ),
            pod("hanging", 1, &polite("hanging"), "{exec: {command: [sleep, '4321']}}"),
            pod("deaf", 2, "trap '' TERM; while :; do sleep 0.02; done", "{sleep: {seconds: 1}}"),
        ]
        .concat(),
    );
    for name in ["orderly", "hanging", "deaf"] {
        cluster.ready(name);
    }
    for name in ["orderly", "hanging"] {
        cluster.eventually(&["exec", name, "--", "ls", "/tmp/ready"], |found| found == "/tmp/ready");
    }
    cluster.kubectl(&["delete", "pod", "orderly", "hanging", "deaf", "--timeout=60s"]);
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect("its file");
    assert_eq!(read("orderly"), "hook\nstopped\n");
    // The hook used all of the grace up; the program still was asked to end.
    assert_eq!(read("hanging"), "stopped\n");
    assert_eq!(cluster.events("FailedPreStopHook"), "PreStopHook failed");
}

#[test]
fn http_hooks_reach_the_pod() {
    let cluster = cluster(&[]);
    let program = r#"
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print(self.path, self.headers["User-Agent"].split("/")[0], self.headers["X-Key"], flush=True)
        open("/data/asked", "a").write(self.path + "\n")
        self.send_response(200)
        self.end_headers()
    def log_message(self, *arguments):
        pass
http.server.HTTPServer((os.environ["POD_IP"], 8080), Handler).serve_forever()
"#;
    let folder = tempfile::tempdir().expect("a folder");
    let get = |path: &str| serde_json::json!({"httpGet": {"path": path, "port": "web", "httpHeaders": [{"name": "X-Key", "value": "v"}]}});
    let manifest = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
    "volumes": [{"name": "data", "hostPath": {"path": folder.path()}}],
    "containers": [{
        "name": "c", "image": "local/python3", "command": ["python3", "-c", program],
        "ports": [{"name": "web", "containerPort": 8080}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "web"}, "periodSeconds": 1},
        "lifecycle": {"preStop": get("/stop")},
    }]}});
    cluster.create(&manifest.to_string());
    cluster.ready("p");
    cluster.kubectl(&["delete", "pod", "p", "--grace-period=3", "--timeout=60s"]);
    let asked = std::fs::read_to_string(folder.path().join("asked")).expect("what was asked");
    assert!(asked.starts_with("/ready\n") && asked.contains("/stop\n"), "{asked}");
}

#[test]
fn image_has_files_of_its_own_and_contexts_decide_on_rights() {
    let folder = tempfile::tempdir().expect("a folder");
    let image = folder.path().join("tool:1");
    std::fs::create_dir_all(image.join("root/opt")).expect("a folder");
    std::fs::write(image.join("root/opt/greeting"), "of the image\n").expect("a file");
    std::fs::write(image.join("image.yaml"), "root: root\n").expect("a manifest");
    let cluster = cluster(&["--images", &folder.path().display().to_string()]);
    let show = "grep CapBnd /proc/self/status; cat /opt/greeting; echo own > /opt/greeting; sleep 1234";
    let container = |name: &str, context: serde_json::Value| serde_json::json!({"name": name, "image": "tool:1", "command": ["sh", "-c", show], "securityContext": context});
    let manifest = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
        "volumes": [{"name": "files", "image": {"reference": "tool:1"}}],
        "containers": [
            container("default", serde_json::json!({})),
            container("none", serde_json::json!({"capabilities": {"drop": ["ALL"]}})),
            container("some", serde_json::json!({"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}})),
            container("privileged", serde_json::json!({"privileged": true})),
            {"name": "reader", "image": "local/sh", "command": ["sh", "-c", "cat /files/opt/greeting; sleep 1234"],
                "volumeMounts": [{"name": "files", "mountPath": "/files"}]}]}});
    cluster.create(&manifest.to_string());
    let waiting = ".status.containerStatuses[0].state.waiting.message";
    let state = format!("jsonpath={{{waiting}}} {{.status.conditions[?(@.type==\"Ready\")].status}}");
    cluster.eventually(&["get", "pod", "p", "-o", &state], |found| {
        found.contains("need namespaces") || found.trim() == "True"
    });
    let refused = cluster.field("p", waiting);
    if refused.contains("need namespaces") {
        orlop_testbed::not_run::not_run(&refused);
        return;
    }
    let log = |container: &str| cluster.kubectl(&["logs", "p", "-c", container]);
    assert_eq!(log("default"), "CapBnd:\t00000000a80425fb\nof the image");
    assert_eq!(log("none"), "CapBnd:\t0000000000000000\nof the image");
    assert_eq!(log("some"), "CapBnd:\t0000000000000400\nof the image");
    // What others wrote is theirs.
    assert_eq!(log("reader"), "of the image");
    let all = log("privileged");
    assert!(all.starts_with("CapBnd:\t0000") && all != log("default"), "{all}");
}

#[test]
fn image_names_the_user_of_its_programs() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, user) in [("plain", ""), ("nobody", "user: '65534:65533'\n"), ("root", "user: 0\n")] {
        let image = folder.path().join(name);
        std::fs::create_dir_all(&image).expect("a folder");
        std::fs::write(image.join("image.yaml"), format!("entrypoint: [sh]\n{user}")).expect("a manifest");
    }
    let cluster = cluster(&["--images", &folder.path().display().to_string()]);
    let create = |name: &str, image: &str, context: serde_json::Value| {
        let manifest = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": image, "args": ["-c", "echo $(id -u):$(id -g)"], "securityContext": context}]}});
        cluster.create(&manifest.to_string());
    };
    let is_root =
        std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    create("of-image", "nobody", serde_json::json!({"runAsNonRoot": true}));
    cluster.wait_for("of-image", ".status.phase", "Succeeded");
    if !is_root {
        // A node that is not root runs every image as itself.
        return;
    }
    assert_eq!(cluster.kubectl(&["logs", "of-image"]), "65534:65533");
    create("of-container", "nobody", serde_json::json!({"runAsUser": 1234}));
    cluster.wait_for("of-container", ".status.phase", "Succeeded");
    assert_eq!(cluster.kubectl(&["logs", "of-container"]), "1234:0");
    for image in ["plain", "root"] {
        create(image, image, serde_json::json!({"runAsNonRoot": true}));
        let reason = ".status.containerStatuses[0].state.waiting.reason";
        cluster.wait_for(image, reason, "CreateContainerConfigError");
        let message = cluster.field(image, ".status.containerStatuses[0].state.waiting.message");
        assert!(message.starts_with("container has runAsNonRoot and image will run as root"), "{message}");
    }
}
