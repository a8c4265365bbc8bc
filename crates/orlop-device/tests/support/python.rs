//! Python with gRPC's own packages, in an environment under the target folder.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
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
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    text
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The environment's interpreter; made the first time, and kept.
pub(crate) fn interpreter() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python-grpc-1.85.0");
        let interpreter = folder.join("bin/python");
        let ready = folder.join("ready");
        if !ready.exists() {
            make(&folder, &interpreter);
            std::fs::write(ready, PACKAGES.join("\n")).expect("the target folder can be written");
        }
        interpreter
    })
}

fn make(folder: &Path, interpreter: &Path) {
    let check = |what: &str, command: &mut Command| {
        let output = command.output().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(
            output.status.success(),
            "{what} failed. These tests drive the server with gRPC's Python packages: they need python3 with \
             venv, and PyPI (or a mirror that pip knows) the first time.\n{}",
            said(&output)
        );
    };
    // Somebody else may be at it: another test binary of the same run.
    let lock = folder.with_extension("lock");
    let file = std::fs::File::create(lock).expect("the target folder can be written");
    file.lock().expect("a lock on the target folder");
    if folder.join("ready").exists() {
        return;
    }
    check("python3 -m venv", Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder));
    check("pip install", Command::new(interpreter).args(["-m", "pip", "install", "-q"]).args(PACKAGES));
}
