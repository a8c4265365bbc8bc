//! `cargo xtask conformance`: runs what real clients do, and writes what was shown into COMPAT.md.
//!
//! A test's name says what it shows, so the table is made of names; a test below holds the table to the tests
//! that exist.

use std::{collections::BTreeMap, fs, path::PathBuf, process::Command};

use crate::steps::root;

const BEGIN: &str = "<!-- written by `cargo xtask conformance` -->";
const END: &str = "<!-- the end of what was written -->";

/// The tests of one client.
struct Suite {
    client: &'static str,
    package: &'static str,
    /// The test program, whose sources are in a folder of its name.
    target: &'static str,
}

const SUITES: [Suite; 4] = [
    Suite { client: "kubectl", package: "orlop", target: "kubectl" },
    Suite { client: "kube-rs", package: "orlop-test", target: "kube_rs" },
    Suite { client: "Python", package: "orlop", target: "python" },
    Suite { client: "Node", package: "orlop", target: "node" },
];

pub(crate) fn run() -> Result<(), String> {
    let mut rows = Vec::new();
    let mut failed = 0;
    for suite in &SUITES {
        println!("==> {}", suite.client);
        for (name, passed) in results(suite)? {
            failed += usize::from(!passed);
            rows.push(row(suite, &name, if passed { "yes" } else { "NO" }));
        }
    }
    let path = compat();
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let (before, _, after) = parts(&text)?;
    let table = format!("| client | what was shown | holds |\n|---|---|---|\n{}", rows.concat());
    fs::write(&path, format!("{before}{BEGIN}\n\n{table}\n{END}{after}"))
        .map_err(|error| format!("{}: {error}", path.display()))?;
    println!("{} tests are in {}", rows.len(), path.display());
    if failed == 0 { Ok(()) } else { Err(format!("{failed} of them failed")) }
}

/// Runs a suite and returns the outcome of each test by name.
fn results(suite: &Suite) -> Result<BTreeMap<String, bool>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["test", "--package", suite.package, "--test", suite.target])
        .current_dir(root())
        .output()
        .map_err(|error| format!("cargo could not be run: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let results: BTreeMap<String, bool> = said.lines().filter_map(result).collect();
    if results.is_empty() {
        return Err(format!("no test of {} ran: {}", suite.client, String::from_utf8_lossy(&output.stderr)));
    }
    Ok(results)
}

/// `test module::name ... ok`.
fn result(line: &str) -> Option<(String, bool)> {
    let (name, outcome) = line.strip_prefix("test ")?.split_once(" ... ")?;
    Some((name.to_owned(), outcome == "ok"))
}

/// `| kubectl | apply: a dry run and a diff change nothing | yes |`.
fn row(suite: &Suite, name: &str, holds: &str) -> String {
    let shown = match name.split_once("::") {
        Some((module, test)) => format!("{module}: {}", test.replace('_', " ")),
        None => name.replace('_', " "),
    };
    format!("| {} | {shown} | {holds} |\n", suite.client)
}

fn compat() -> PathBuf {
    root().join("COMPAT.md")
}

/// Splits the text into the part before the table, the table, and the part after it.
fn parts(text: &str) -> Result<(&str, &str, &str), String> {
    let missing = || format!("COMPAT.md has no {BEGIN} with a {END} after it");
    let (before, rest) = text.split_once(BEGIN).ok_or_else(missing)?;
    let (table, after) = rest.split_once(END).ok_or_else(missing)?;
    Ok((before, table, after))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The names of the tests in a folder, with their modules.
    fn tests_in(folder: &Path) -> Result<Vec<String>, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).map_err(failed)?.flatten() {
            let path = entry.path();
            let module = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let text = fs::read_to_string(&path).map_err(failed)?;
            let lines: Vec<&str> = text.lines().map(str::trim).collect();
            for pair in lines.windows(2) {
                let is_test = matches!(pair[0], "#[test]" | "#[tokio::test]");
                let name = pair[1].strip_prefix("async ").unwrap_or(pair[1]).strip_prefix("fn ");
                if let (true, Some(name)) = (is_test, name.and_then(|rest| rest.split('(').next())) {
                    found.push(if module == "main" { name.to_owned() } else { format!("{module}::{name}") });
                }
            }
        }
        Ok(found)
    }

    #[test]
    fn the_table_of_clients_names_the_tests_that_exist() {
        let text = fs::read_to_string(compat()).unwrap();
        let (_, table, _) = parts(&text).unwrap();
        let mut written: Vec<&str> = table.lines().filter(|line| line.ends_with(" yes |")).collect();
        let mut expected = Vec::new();
        for suite in &SUITES {
            let folder = root().join("crates").join(suite.package).join("tests").join(suite.target);
            let tests = tests_in(&folder).unwrap();
            expected.extend(tests.iter().map(|name| row(suite, name, "yes").trim_end().to_owned()));
        }
        written.sort_unstable();
        expected.sort_unstable();
        assert_eq!(written, expected, "run `cargo xtask conformance`");
    }

    #[test]
    fn results_are_read_from_what_cargo_prints() {
        assert_eq!(result("test apply::a_b ... ok"), Some(("apply::a_b".to_owned(), true)));
        assert_eq!(result("test a ... FAILED"), Some(("a".to_owned(), false)));
        assert_eq!(result("test result: ok. 2 passed"), None);
        assert_eq!(row(&SUITES[0], "apply::a_b", "yes"), "| kubectl | apply: a b | yes |\n");
    }
}
