//! `orlop serve` with audit, as kubectl uses it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::mpsc,
    time::{Duration, Instant},
};

use serde_json::Value;
use support::{Server, daemon::Daemon};

fn events(log: &Path) -> Vec<Value> {
    fs::read_to_string(log).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn kubectl_requests_are_audited_by_the_default_policy() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("logs").join("audit.log");
    let server = Server::start_with(&["--audit-log-path", log.to_str().unwrap()]);
    server.kubectl(&["create", "secret", "generic", "a", "--from-literal=password=plaintext"]);
    server.kubectl(&["create", "clusterrole", "reader", "--verb=get", "--resource=pods"]);
    server.kubectl(&["get", "secrets", "--as=bob", "--as-group=system:masters"]);
    assert_eq!(fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(&log).unwrap();
    assert!(!text.contains("plaintext") && !text.contains("cGxhaW50ZXh0"), "{text}");
    let events = events(&log);
    let find = |verb: &str, resource: &str| {
        let wanted = |event: &&Value| event["verb"] == verb && event["objectRef"]["resource"] == resource;
        events.iter().rfind(wanted).unwrap_or_else(|| panic!("no {verb} {resource}: {text}"))
    };
    let create = find("create", "secrets");
    assert_eq!((&create["objectRef"]["name"], &create["level"]), (&"a".into(), &"Metadata".into()));
    assert_eq!(create["sourceIPs"], serde_json::json!(["127.0.0.1"]));
    assert!(create["userAgent"].as_str().unwrap().starts_with("kubectl"));
    let role = find("create", "clusterroles");
    assert_eq!(role["requestObject"]["rules"][0]["resources"][0], "pods");
    assert_eq!(find("list", "secrets")["impersonatedUser"]["username"], "bob");
    assert!(!events.iter().any(|event| event["objectRef"]["resource"] == "leases"));
}

#[test]
fn audit_log_rotates_while_requests_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let (log, policy) = (folder.path().join("audit.log"), folder.path().join("policy.yaml"));
    let text = "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: RequestResponse}]}";
    fs::write(&policy, text).unwrap();
    let options =
        ["--audit-log-path", log.to_str().unwrap(), "--audit-policy-file", policy.to_str().unwrap()];
    let rotation = ["--audit-log-maxsize", "1", "--audit-log-compress", "--audit-log-mode", "batch"];
    let server = Server::start_with(&[options.as_slice(), &rotation].concat());
    let large = folder.path().join("large");
    fs::write(&large, "x".repeat(600 << 10)).unwrap();
    let from = format!("--from-file={}", large.display());
    for name in ["a", "b", "c"] {
        server.kubectl(&["create", "configmap", name, &from]);
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    let rotated = || {
        let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".log.gz")).count()
    };
    while rotated() < 2 {
        assert!(Instant::now() < deadline, "{:?}", fs::read_dir(folder.path()).unwrap().collect::<Vec<_>>());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A webhook that answers everything with 200. Returns its address, and the bodies that it gets.
fn webhook() -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (sender, bodies) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, sender) = (stream.unwrap(), sender.clone());
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                loop {
                    let (mut length, mut line) = (0, String::new());
                    while reader.read_line(&mut line).is_ok_and(|read| read > 0) && line != "\r\n" {
                        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                            length = value.trim().parse().unwrap();
                        }
                        line.clear();
                    }
                    let mut body = vec![0; length];
                    if length == 0 || reader.read_exact(&mut body).is_err() {
                        return;
                    }
                    let _ = sender.send(String::from_utf8(body).unwrap());
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").unwrap();
                }
            });
        }
    });
    (address, bodies)
}

#[test]
fn log_and_webhook_get_the_same_events() {
    let folder = tempfile::tempdir().unwrap();
    let (log, kubeconfig) = (folder.path().join("audit.log"), folder.path().join("webhook.kubeconfig"));
    let (address, bodies) = webhook();
    let text = format!(
        "{{apiVersion: v1, kind: Config, current-context: a, contexts: [{{name: a, context: {{cluster: a}}}}], \
         clusters: [{{name: a, cluster: {{server: \"http://{address}/\"}}}}]}}"
    );
    fs::write(&kubeconfig, text).unwrap();
    let server = Server::start_with(&[
        "--audit-log-path",
        log.to_str().unwrap(),
        "--audit-webhook-config-file",
        kubeconfig.to_str().unwrap(),
        "--audit-webhook-batch-max-wait",
        "100ms",
    ]);
    server.kubectl(&["create", "configmap", "seen-twice"]);
    let is_wanted = |event: &Value| event["verb"] == "create" && event["objectRef"]["name"] == "seen-twice";
    let logged = events(&log).into_iter().find(is_wanted).expect("it is logged when it is answered");
    let deadline = Instant::now() + Duration::from_secs(60);
    let posted = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let list: Value = serde_json::from_str(&bodies.recv_timeout(left).expect("it is posted")).unwrap();
        let found = list["items"].as_array().unwrap().iter().find(|event| is_wanted(event)).cloned();
        if let Some(found) = found {
            break found;
        }
    };
    for field in ["auditID", "stage", "requestURI", "user", "responseStatus"] {
        assert_eq!(posted[field], logged[field], "{field}");
    }
}

#[test]
fn bad_audit_options_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("policy.yaml");
    fs::write(&policy, "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{levle: None}]}").unwrap();
    let (data, path) = (folder.path().join("data"), policy.to_str().unwrap());
    let refused = Daemon::refused(&data, &["--audit-log-path", "-", "--audit-policy-file", path]);
    assert!(refused.contains("unknown field `levle`") && refused.contains(path), "{refused}");
    let refused = Daemon::refused(&data, &["--audit-policy-file", path]);
    assert!(refused.contains("--audit-log-path"), "{refused}");
    let refused = Daemon::refused(&data, &["--audit-webhook-config-file", "/nonexistent"]);
    assert!(refused.contains("audit webhook"), "{refused}");
    let sizes = ["--audit-log-path", "-", "--audit-log-truncate-max-batch-size", "5"];
    let refused = Daemon::refused(&data, &sizes);
    assert!(refused.contains("must be greater than max event size"), "{refused}");
}
