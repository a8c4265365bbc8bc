//! Examples that are scripts, with the programs of the debug build.

use std::process::Command;

use crate::steps::root;

/// Runs `examples/slate/run.sh` with a store, and with pymongo from PyPI. It fails unless everything ends as it should.
pub(crate) fn slate(store: &str) -> Result<(), String> {
    let python = orlop_testbed::python::pymongo()?;
    let mut script = Command::new(root().join("examples/slate/run.sh"));
    run("examples/slate/run.sh", script.env("STORE", store).env("PYTHON", python))
}

/// Runs `examples/tubi/run.sh`, on a simulator of AWS from PyPI.
pub(crate) fn tubi() -> Result<(), String> {
    let python = orlop_testbed::python::aws_simulators()?;
    run("examples/tubi/run.sh", Command::new(root().join("examples/tubi/run.sh")).env("PYTHON", python))
}

fn run(name: &str, script: &mut Command) -> Result<(), String> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), Into::into);
    let status = script
        .env("BIN", target.join("debug"))
        .env("KUBECTL", orlop_testbed::debian::kubectl()?)
        .status()
        .map_err(|error| format!("{name} could not be run: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{name} ended with {status}")) }
}
