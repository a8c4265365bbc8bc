//! Pods: their containers, logs, commands and accounts.

use crate::cluster::{cluster, pod, web_image};

#[test]
fn pod_runs_logs_executes_and_is_deleted() {
    let server = cluster(&[]);
    let spec = "{containers: [{name: c, image: local/sh, command: [sh, -c, 'echo hello $POD_IP; echo bad >&2; sleep 1234']}]}";
    server.with_input(&["create", "-f", "-"], &pod("p", spec));
    server.kubectl(&["wait", "--for=condition=Ready", "pod/p", "--timeout=60s"]);
    let logs = server.kubectl(&["logs", "p"]);
    assert!(logs.contains("hello 127.") && logs.contains("bad"), "{logs}");
    assert_eq!(server.kubectl(&["logs", "p", "--tail=1", "--limit-bytes=3"]).len(), 3);
    assert_eq!(server.kubectl(&["exec", "p", "--", "sh", "-c", "echo $POD_IP"]).lines().count(), 1);
    assert_eq!(server.with_input(&["exec", "-i", "p", "--", "cat"], "through"), "through");
    let failed = server.refused(&["exec", "p", "--", "sh", "-c", "exit 7"], "");
    assert!(failed.contains("command terminated with exit code 7"), "{failed}");
    let missing = server.refused(&["exec", "p", "--", "no-such-program"], "");
    assert!(missing.contains("executable file not found in $PATH"), "{missing}");

    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file").display().to_string();
    std::fs::write(&file, "copied").expect("a file");
    server.kubectl(&["cp", &file, "p:/tmp/orlop-copied"]);
    assert_eq!(server.kubectl(&["exec", "p", "--", "cat", "/tmp/orlop-copied"]), "copied");

    server.kubectl(&["delete", "pod", "p", "--timeout=60s"]);
    assert_eq!(server.kubectl(&["get", "pods", "-o", "name"]), "");
}

#[test]
fn crashing_container_waits_longer_and_longer_and_keeps_its_last_log() {
    let server = cluster(&[]);
    let spec = "{containers: [{name: c, image: local/sh, command: [sh, -c, 'echo run; echo why > /dev/termination-log; exit 3']}]}";
    server.with_input(&["create", "-f", "-"], &pod("p", spec));
    let reason = ["get", "pod", "p", "-o", "jsonpath={.status.containerStatuses[0].state.waiting.reason}"];
    server.eventually(&reason, |output| output == "CrashLoopBackOff");
    let last = "jsonpath={.status.containerStatuses[0].lastState.terminated.exitCode} {.status.containerStatuses[0].restartCount} {.status.phase}";
    assert_eq!(server.kubectl(&["get", "pod", "p", "-o", last]), "3 1 Running");
    let time =
        |name: &str| server.field("p", &format!(".status.containerStatuses[0].lastState.terminated.{name}"));
    assert!(time("startedAt") <= time("finishedAt"), "{} {}", time("startedAt"), time("finishedAt"));
    assert_eq!(server.kubectl(&["logs", "p", "--previous"]), "run");
    let described = server.kubectl(&["describe", "pod", "p"]);
    assert!(described.contains("Back-off restarting failed container c in pod p_default("), "{described}");
}

#[test]
fn unknown_image_is_a_failed_pull_that_names_the_known_ones() {
    let images = web_image();
    let server = cluster(&["--images", &images.path().display().to_string()]);
    server.kubectl(&["run", "p", "--image=nothing:1"]);
    let reason = ["get", "pod", "p", "-o", "jsonpath={.status.containerStatuses[0].state.waiting.reason}"];
    server.eventually(&reason, |output| output == "ImagePullBackOff");
    let events = server.kubectl(&["get", "events", "-o", "jsonpath={.items[*].message}"]);
    assert!(
        events.contains("image \"nothing:1\" is not known to this node; known are: web, local/NAME"),
        "{events}"
    );
    let log = server.refused(&["logs", "p"], "");
    assert!(log.contains("is waiting to start: image can't be pulled"), "{log}");
    // Their times are whole seconds: kubectl describes events in the order of the list.
    let of_node = "--field-selector=involvedObject.name=p,source=kubelet";
    let reasons = server.kubectl(&["get", "events", of_node, "-o", "jsonpath={.items[*].reason}"]);
    assert!(reasons.starts_with("Pulling Failed Failed"), "{reasons}");
}

#[test]
fn init_containers_volumes_and_probes_come_together() {
    let server = cluster(&[]);
    server.kubectl(&["create", "configmap", "settings", "--from-literal=colour=blue"]);
    let spec = r#"
  initContainers:
  - {name: first, image: local/sh, command: [sh, -c, 'echo one > $ORLOP_ROOT/data/order'], volumeMounts: [{name: data, mountPath: /data}]}
  containers:
  - name: main
    image: local/sh
    command: [sh, -c, 'stat -f -c %T $ORLOP_ROOT/memory/; cat $ORLOP_ROOT/data/order $ORLOP_ROOT/settings/colour; echo; echo $COLOUR-$NAME; sleep 1; touch $ORLOP_ROOT/data/ready; sleep 1234']
    env:
    - {name: COLOUR, valueFrom: {configMapKeyRef: {name: settings, key: colour}}}
    - {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    readinessProbe: {exec: {command: [sh, -c, 'test -f $ORLOP_ROOT/data/ready']}, periodSeconds: 1}
    volumeMounts: [{name: data, mountPath: /data}, {name: settings, mountPath: /settings}, {name: memory, mountPath: /memory}]
  volumes:
  - {name: data, emptyDir: {}}
  - {name: memory, emptyDir: {medium: Memory}}
  - {name: settings, configMap: {name: settings}}
"#;
    server.with_input(
        &["create", "-f", "-"],
        &format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec:{spec}"),
    );
    server.kubectl(&["wait", "--for=condition=Ready", "pod/p", "--timeout=60s"]);
    assert_eq!(server.kubectl(&["logs", "p", "-c", "main"]), "tmpfs\none\nblue\nblue-p");
    let described = server.kubectl(&["describe", "pod", "p"]);
    assert!(described.contains("Readiness probe failed"), "{described}");
    let uid = server.kubectl(&["get", "pod", "p", "-o", "jsonpath={.metadata.uid}"]);
    let memory = std::path::PathBuf::from(format!("/dev/shm/orlop-pod-{uid}"));
    assert!(memory.exists(), "the pod runs");
    server.kubectl(&["delete", "pod", "p", "--grace-period=1"]);
    // Any answer will do: the directory goes after the pod.
    server.eventually(&["get", "pods", "-o", "name"], |_| !memory.exists());
}

#[test]
fn pod_calls_the_api_with_the_token_of_its_account() {
    let server = cluster(&[]);
    server.kubectl(&["create", "serviceaccount", "reader"]);
    server.kubectl(&["create", "role", "reader", "--verb=get", "--resource=configmaps"]);
    server.kubectl(&["create", "rolebinding", "reader", "--role=reader", "--serviceaccount=default:reader"]);
    // The files are where every client looks for them, below the container's root.
    let program = r#"
import os, ssl, urllib.request
folder = os.environ.get("ORLOP_ROOT", "") + "/var/run/secrets/kubernetes.io/serviceaccount/"
read = lambda name: open(folder + name).read().strip()
host = "https://" + os.environ["KUBERNETES_SERVICE_HOST"] + ":" + os.environ["KUBERNETES_SERVICE_PORT"]
path = "/api/v1/namespaces/" + read("namespace") + "/configmaps/kube-root-ca.crt"
request = urllib.request.Request(host + path, headers={"Authorization": "Bearer " + read("token")})
answer = urllib.request.urlopen(request, context=ssl.create_default_context(cafile=folder + "ca.crt"))
print("answered", answer.status, flush=True)
"#;
    let mut container = serde_json::json!({"name": "c", "image": "local/python3"});
    container["command"] = serde_json::json!(["python3", "-c", program]);
    let manifest = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"serviceAccountName": "reader", "restartPolicy": "Never", "containers": [container]}});
    server.with_input(&["create", "-f", "-"], &manifest.to_string());
    server.eventually(&["get", "pod", "p", "-o", "jsonpath={.status.phase}"], |phase| {
        matches!(phase, "Succeeded" | "Failed")
    });
    let logs = server.kubectl(&["logs", "p"]);
    assert_eq!(logs.trim(), "answered 200");
}
