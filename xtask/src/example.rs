//! The example of Slate, with the programs of the debug build.

use std::process::Command;

use crate::steps::root;

/// Runs `examples/slate/run.sh`, which fails unless everything ends as it should.
pub(crate) fn slate() -> Result<(), String> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), Into::into);
    let status = Command::new(root().join("examples/slate/run.sh"))
        .env("BIN", target.join("debug"))
        .env("KUBECTL", orlop_testbed::debian::kubectl()?)
        .status()
        .map_err(|error| format!("examples/slate/run.sh could not be run: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("examples/slate/run.sh ended with {status}")) }
}
