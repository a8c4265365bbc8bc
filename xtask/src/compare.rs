//! `cargo xtask compare`: the same requests to Orlop and to a kube-apiserver.

use crate::{smoke, steps};

/// Runs `orlop-compare`, on an Orlop of its own unless a server or a program is given.
pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let program = smoke::release_program("orlop").display().to_string();
    let mut command = vec!["run", "--quiet", "--package", "orlop-compare", "--"];
    let given = |argument: &&str| matches!(*argument, "--server" | "--orlop" | "--allowed");
    if !arguments.iter().any(given) {
        steps::cargo(&["build", "--quiet", "--release", "--package", "orlop"])?;
        command.extend(["--orlop", &program]);
    }
    command.extend(arguments);
    steps::cargo(&command)
}
