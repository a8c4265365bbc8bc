//! `cargo xtask bench`: measurements, optimised as a release is.

use crate::steps::cargo;

const SUBJECTS: [&str; 4] = ["store", "api", "definitions", "etcd"];

pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    match arguments {
        [subject, ..] if SUBJECTS.contains(subject) => {
            // The API server and the etcd endpoint are measured as the program that people run.
            cargo(&["build", "--release", "--quiet", "--package", "orlop"])?;
            cargo(&[&["run", "--release", "--quiet", "--package", "orlop-bench", "--"], arguments].concat())
        }
        _ => Err(format!("say what to measure: cargo xtask bench {} [--json FILE]", SUBJECTS.join("|"))),
    }
}
