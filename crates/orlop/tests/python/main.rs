//! Python's `kubernetes` client and `kopf`, unmodified, against `orlop serve`. The scripts beside this file fail
//! the test by failing.

#[path = "../support/mod.rs"]
mod support;

use std::{path::Path, process::Command};

use support::Server;

const PACKAGES: [&str; 2] = ["kubernetes==37.0.2", "kopf==1.45.2"];

/// Runs a script against a new server, to its last line.
#[track_caller]
fn run(script: &str) {
    let python = orlop_testbed::python::environment("python-kubernetes", &PACKAGES).expect("python");
    let server = Server::start();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python").join(script);
    let output = Command::new(python)
        .arg("-B")
        .arg(path)
        .env("KUBECONFIG", server.ready()["kubeconfig"].as_str().unwrap_or_default())
        .output()
        .expect("python runs");
    let done = output.status.success() && output.stdout.ends_with(b"done\n");
    let said = [output.stdout, output.stderr].concat();
    assert!(done, "{}", String::from_utf8_lossy(&said));
}

#[test]
fn typed_objects_are_created_updated_and_deleted() {
    run("objects.py");
}

#[test]
fn dynamic_objects_are_discovered_and_applied() {
    run("dynamic.py");
}

#[test]
fn watches_resume_at_their_resource_version() {
    run("watching.py");
}

#[test]
fn kopf_operator_handles_creation_update_and_deletion() {
    run("operator_kopf.py");
}
