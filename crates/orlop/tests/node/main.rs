//! Node.js' `@kubernetes/client-node`, unmodified, against `orlop serve`. The script beside this file fails the
//! test by failing.

#[path = "../support/mod.rs"]
mod support;

use std::{path::Path, process::Command};

use support::Server;

const PACKAGES: [&str; 1] = ["@kubernetes/client-node@1.4.0"];

/// Runs one part of the script against a new server.
#[track_caller]
fn run(part: &str) {
    let modules = orlop_testbed::node::modules("node-kubernetes", &PACKAGES).expect("node");
    // Node.js resolves modules beside the script, so it is copied there.
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node/client.mjs");
    let copy = modules.join(format!("{part}-{}.mjs", std::process::id()));
    std::fs::copy(script, &copy).expect("the script");
    let server = Server::start();
    let output = Command::new("node")
        .arg(&copy)
        .arg(part)
        .env("KUBECONFIG", server.ready()["kubeconfig"].as_str().unwrap_or_default())
        .output()
        .expect("node runs");
    let _ = std::fs::remove_file(copy);
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.ends_with("done\n"), "{said}");
}

#[test]
fn objects_are_created_listed_patched_and_validated() {
    run("objects");
}

#[test]
fn informer_receives_events() {
    run("informer");
}
