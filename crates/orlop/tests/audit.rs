//! `orlop serve` with audit, as kubectl uses it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
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
