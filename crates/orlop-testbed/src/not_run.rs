//! Tests that cannot run on a machine are listed, so that nobody takes them for passed.

use std::io::Write;

/// Environment variable with the file that tests are listed in. `cargo xtask test` prints it at the end.
pub const NOT_RUN: &str = "ORLOP_TESTS_NOT_RUN";

/// Lists the running test as not run.
pub fn not_run(reason: &str) {
    let thread = std::thread::current();
    let line = format!("{}: {reason}", thread.name().unwrap_or("a test"));
    println!("not run: {line}");
    if let Some(list) = std::env::var_os(NOT_RUN) {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(list);
        file.and_then(|mut file| writeln!(file, "{line}")).expect("the list of tests that were not run");
    }
}
