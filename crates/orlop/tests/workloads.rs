//! Pods that run: kubectl, unmodified, against `orlop serve --node`.

mod support;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use support::{Server, daemon::Daemon};

/// A server of HTTP that ends well: it answers what it has accepted.
const WEB: &str = r#"
import http.server, os, signal, threading
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = (os.environ.get("VERSION", "1") + " " + os.environ["HOSTNAME"] + "\n").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *arguments):
        pass
server = http.server.ThreadingHTTPServer((os.environ["POD_IP"], 8080), Handler)
server.daemon_threads = False
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
server.serve_forever()
server.server_close()
"#;

fn cluster(options: &[&str]) -> Server {
    let options = [&["--node", "--node-name", "n1"], options].concat();
    let server = Server::start_with(&options);
    server.eventually(&["get", "nodes", "--no-headers"], |output| output.contains("Ready"));
    server
}

/// Returns a folder of images with the web server.
fn web_image() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let image = folder.path().join("web");
    std::fs::create_dir(&image).expect("a folder");
    std::fs::write(image.join("web.py"), WEB).expect("a program");
    let program = image.join("web.py").display().to_string();
    let python =
        Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().expect("python3");
    let python = String::from_utf8(python.stdout).expect("a path");
    let manifest = format!("entrypoint: [{}, {program}]\n", python.trim());
    std::fs::write(image.join("image.yaml"), manifest).expect("a manifest");
    folder
}

fn pod(name: &str, spec: &str) -> String {
    format!("---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {spec}}}")
}

/// Asks for a page. `None` if no complete answer came.
fn get(address: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.0 200").then(|| body.to_owned())
}

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
    command: [sh, -c, 'cat $ORLOP_ROOT/data/order $ORLOP_ROOT/settings/colour; echo; echo $COLOUR-$NAME; sleep 1; touch $ORLOP_ROOT/data/ready; sleep 1234']
    env:
    - {name: COLOUR, valueFrom: {configMapKeyRef: {name: settings, key: colour}}}
    - {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    readinessProbe: {exec: {command: [sh, -c, 'test -f $ORLOP_ROOT/data/ready']}, periodSeconds: 1}
    volumeMounts: [{name: data, mountPath: /data}, {name: settings, mountPath: /settings}]
  volumes:
  - {name: data, emptyDir: {}}
  - {name: settings, configMap: {name: settings}}
"#;
    server.with_input(
        &["create", "-f", "-"],
        &format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec:{spec}"),
    );
    server.kubectl(&["wait", "--for=condition=Ready", "pod/p", "--timeout=60s"]);
    assert_eq!(server.kubectl(&["logs", "p", "-c", "main"]), "one\nblue\nblue-p");
    let described = server.kubectl(&["describe", "pod", "p"]);
    assert!(described.contains("Readiness probe failed"), "{described}");
}

#[test]
fn service_answers_every_request_during_a_rolling_update() {
    let images = web_image();
    let server = cluster(&["--images", &images.path().display().to_string()]);
    let manifest = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: web
        ports: [{containerPort: 8080}]
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{port: 8080}]
"#;
    server.with_input(&["create", "-f", "-"], manifest);
    server.kubectl(&["rollout", "status", "deployment/web", "--timeout=120s"]);
    let address =
        format!("{}:8080", server.kubectl(&["get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"]));
    let deadline = Instant::now() + Duration::from_secs(30);
    while get(&address).is_none() {
        assert!(Instant::now() < deadline, "the service does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
    let done = AtomicBool::new(false);
    let answers: Vec<Option<String>> = std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut answers = Vec::new();
            while !done.load(Ordering::Relaxed) {
                answers.push(get(&address));
            }
            answers
        });
        server.kubectl(&["set", "env", "deployment/web", "VERSION=2"]);
        server.kubectl(&["rollout", "status", "deployment/web", "--timeout=120s"]);
        let deadline = Instant::now() + Duration::from_secs(60);
        while server.kubectl(&["get", "pods", "-o", "name"]).lines().count() != 3 {
            assert!(Instant::now() < deadline, "old pods stay");
        }
        done.store(true, Ordering::Relaxed);
        client.join().expect("the client")
    });
    let failed = answers.iter().filter(|answer| answer.is_none()).count();
    assert_eq!(failed, 0, "of {} requests", answers.len());
    assert!(answers.iter().flatten().any(|answer| answer.starts_with("1 ")));
    assert!(get(&address).is_some_and(|answer| answer.starts_with("2 ")));
}

#[test]
fn port_is_forwarded_and_proxied() {
    let images = web_image();
    let server = cluster(&["--images", &images.path().display().to_string()]);
    server.kubectl(&["run", "web", "--image=web", "--port=8080"]);
    server.kubectl(&["wait", "--for=condition=Ready", "pod/web", "--timeout=60s"]);
    server.eventually(&["get", "--raw", "/api/v1/namespaces/default/pods/web:8080/proxy/"], |output| {
        output == "1 web"
    });
    assert_eq!(server.kubectl(&["get", "--raw", "/api/v1/nodes/n1/proxy/healthz"]), "ok");
    let mut forward = Command::new(support::kubectl())
        .arg("--kubeconfig")
        .arg(server.kubeconfig())
        .args(["port-forward", "pod/web", ":8080"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("kubectl");
    let mut line = String::new();
    let mut output = BufReader::new(forward.stdout.take().expect("its output"));
    output.read_line(&mut line).expect("a line");
    let port = line
        .split_once("127.0.0.1:")
        .and_then(|(_, rest)| rest.split_once(' '))
        .expect("a port")
        .0
        .to_owned();
    let answers = [0; 3].map(|_| get(&format!("127.0.0.1:{port}")));
    forward.kill().expect("killed");
    forward.wait().expect("it ends");
    assert_eq!(answers, [0; 3].map(|_| Some("1 web\n".to_owned())));
}

#[test]
fn killed_node_takes_its_containers_up_again_and_leaves_none_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let data_dir = folder.path().join("data");
    let options = ["--node", "--node-name", "n1"];
    let daemon = Daemon::start(&data_dir, &options);
    let unique = format!("4{}", std::process::id());
    let spec = format!(
        "{{containers: [{{name: c, image: local/sh, command: [sh, -c, 'echo started; sleep {unique}']}}]}}"
    );
    daemon.with_input(&["create", "-f", "-"], &pod("p", &spec));
    daemon.kubectl(&["wait", "--for=condition=Ready", "pod/p", "--timeout=60s"]);
    let processes = || {
        let listed = Command::new("pgrep").args(["-f", &format!("sleep {unique}")]).output().expect("pgrep");
        String::from_utf8_lossy(&listed.stdout).lines().filter(|line| !line.is_empty()).count()
    };
    let before = processes();
    assert!(before > 0);
    let id = ["get", "pod", "p", "-o", "jsonpath={.status.containerStatuses[0].containerID}"];
    let container = daemon.kubectl(&id);
    daemon.kill();
    assert_eq!(processes(), before);
    let daemon = Daemon::start(&data_dir, &options);
    daemon.kubectl(&["wait", "--for=condition=Ready", "pod/p", "--timeout=60s"]);
    assert_eq!(daemon.kubectl(&["exec", "p", "--", "echo", "again"]), "again");
    assert_eq!(daemon.kubectl(&id), container);
    assert_eq!(daemon.kubectl(&["logs", "p"]), "started");
    assert_eq!(processes(), before);
    daemon.stop();
    assert_eq!(processes(), 0);
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
