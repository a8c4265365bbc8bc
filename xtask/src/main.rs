//! Every chore of this repository, in Rust: `cargo xtask help`.

mod bench;
mod compare;
mod conformance;
mod example;
mod fuzz;
mod smoke;
mod steps;
mod test;
mod tidy;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask test
    Everything that must hold before a change goes in: formatting, lints, and all tests. Finds PostgreSQL
    or installs it (Debian, as root).

cargo xtask bench store|api|access|admission|abuse|compose|fairness|definitions|etcd|slate [--json FILE]
    Measures, beside a peer in the same run; with --json also as rows in a file.

cargo xtask conformance
    Runs what real clients do (kubectl, kube-rs, Python, Node), and writes what was shown into COMPAT.md.

cargo xtask compare (--kube-apiserver PROGRAM --etcd PROGRAM | --reference KUBECONFIG)
    [--orlop PROGRAM | --server KUBECONFIG] [--count N] [--only TEXT] [--report FILE]
    Sends the same 10,000 requests to Orlop and to a kube-apiserver, and compares the answers in full. Programs are started
    on loopback addresses; without --orlop and --server, the release build of Orlop is built and started.
cargo xtask compare --allowed
    Prints the allowed differences, for COMPAT.md.

cargo xtask smoke
    Tries the release build with kubectl, on SQLite and on PostgreSQL.

cargo xtask fuzz [--minutes N]
    Sends mutated requests, and requests that schemathesis makes from OpenAPI, to the release build.

cargo xtask tidy
    Holds the layers: no crate depends upwards, no modules form a cycle.

cargo xtask generate [kinds|protobuf]
    Makes anew what is generated and committed: the data tables of the built-in kinds, from the pinned Kubernetes
    version (needs Go), and the code of the gRPC APIs, from their .proto files.

cargo xtask help
    This text.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match &words[..] {
        ["test"] => test::run(),
        ["bench", rest @ ..] => bench::run(rest),
        ["smoke"] => smoke::build().and_then(|()| smoke::run()),
        ["fuzz", rest @ ..] => fuzz::run(rest),
        ["conformance"] => conformance::run(),
        ["compare", rest @ ..] => compare::run(rest),
        ["tidy"] => tidy::run(),
        ["generate", rest @ ..] => {
            steps::cargo(&[&["run", "--quiet", "--package", "orlop-generate", "--"], rest].concat())
        }
        ["help" | "--help" | "-h"] | [] => {
            print!("{HELP}");
            Ok(())
        }
        _ => Err(format!("there is no such chore: {}\n\n{HELP}", words.join(" "))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
