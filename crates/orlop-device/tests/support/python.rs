//! Python with gRPC's own packages.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

const PACKAGES: [&str; 4] = [
    "grpcio==1.85.1",
    "grpcio-reflection==1.85.0",
    "grpcio-health-checking==1.85.0",
    "grpcio-channelz==1.85.0",
];

/// Runs a script, which finds its arguments in `sys.argv`; fails the test if it fails.
#[track_caller]
pub(crate) fn run(script: &str, arguments: &[&str]) -> String {
    let output =
        Command::new(interpreter()).arg("-c").arg(script).args(arguments).output().expect("python runs");
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}");
    text
}

/// The environment's interpreter; made the first time, and kept.
pub(crate) fn interpreter() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| orlop_testbed::python::environment("python-grpc", &PACKAGES).expect("python"))
}
