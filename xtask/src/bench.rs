//! `cargo xtask bench`: measurements, optimised as a release is.

use crate::steps::cargo;

const SUBJECTS: [&str; 12] = [
    "store",
    "api",
    "access",
    "admission",
    "abuse",
    "aws",
    "compose",
    "fairness",
    "definitions",
    "etcd",
    "slate",
    "workloads",
];

pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    match arguments {
        ["slate", ..] => {
            // With RocksDB, which takes minutes to compile the first time.
            let run =
                ["run", "--release", "--quiet", "--package", "slate-bench", "--features", "rocks", "--"];
            cargo(&[&run, arguments].concat())
        }
        ["aws", ..] => {
            cargo(&["build", "--release", "--quiet", "--package", "orlop", "--package", "orlop-aws"])?;
            cargo(&[&["run", "--release", "--quiet", "--package", "orlop-bench", "--"], arguments].concat())
        }
        [subject, ..] if SUBJECTS.contains(subject) => {
            // The API server and the etcd endpoint are measured as the program that people run.
            cargo(&["build", "--release", "--quiet", "--package", "orlop"])?;
            cargo(&[&["run", "--release", "--quiet", "--package", "orlop-bench", "--"], arguments].concat())
        }
        _ => Err(format!("say what to measure: cargo xtask bench {} [--json FILE]", SUBJECTS.join("|"))),
    }
}
