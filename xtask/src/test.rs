//! `cargo xtask test`: everything that must hold before a change goes in.

use std::path::PathBuf;

use orlop_testbed::not_run::NOT_RUN;

use crate::{
    example, smoke,
    steps::{Steps, cargo, cargo_with},
    tidy,
};

pub(crate) fn run() -> Result<(), String> {
    let mut steps = Steps::default();
    let not_run = NotRun::new()?;
    steps.step("formatting", || {
        cargo(&["fmt", "--all", "--check"]).map_err(|error| format!("{error}\nrun `cargo fmt` to mend it"))
    })?;
    steps.step("layers", tidy::run)?;
    steps.step("lints", || {
        cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "--deny", "warnings"])
    })?;
    steps.step("PostgreSQL", || {
        let folder = orlop_testbed::find_or_install()?;
        println!("    in {}", folder.display());
        Ok(())
    })?;
    steps.step("build", || cargo(&["build", "--workspace", "--all-targets", "--quiet"]))?;
    steps.step("tests", || {
        let tests = ["--lib", "--bins", "--tests"];
        not_run.cargo(&[&["test", "--workspace", "--quiet", "--no-fail-fast"], &tests[..]].concat())
    })?;
    steps.step("examples in the documentation", || cargo(&["test", "--workspace", "--quiet", "--doc"]))?;
    steps.step("Slate on Kubernetes", || example::slate("memory"))?;
    steps.step("user APIs on AWS", example::tubi)?;
    steps.step("Slate on RocksDB", || {
        // Only here: RocksDB's C++ takes minutes to compile, and nobody else needs libclang.
        orlop_testbed::find_or_install_libclang()?;
        let features = ["--features", "slate/rocks,slate-server/rocks"];
        let packages = ["test", "--package", "slate", "--package", "slate-server", "--quiet"];
        not_run.cargo(&[&packages[..], &features].concat())
    })?;
    // With the slate-server that the tests before were run with.
    steps.step("Slate on Kubernetes, on RocksDB", || example::slate("rocks"))?;
    steps.step("release build", smoke::build)?;
    steps.step("release build with kubectl", smoke::run)?;
    not_run.print()?;
    steps.summary("ok");
    Ok(())
}

/// The list of tests that could not run on this machine.
struct NotRun(PathBuf);

impl NotRun {
    /// Begins an empty list.
    fn new() -> Result<Self, String> {
        let list = std::env::temp_dir().join(format!("orlop-tests-not-run-{}", std::process::id()));
        std::fs::write(&list, "").map_err(|error| format!("{}: {error}", list.display()))?;
        Ok(Self(list))
    }

    /// Runs tests that may add themselves to the list.
    fn cargo(&self, arguments: &[&str]) -> Result<(), String> {
        cargo_with(arguments, &[(NOT_RUN, self.0.as_os_str())])
    }

    fn print(self) -> Result<(), String> {
        let failed = |error| format!("{}: {error}", self.0.display());
        let list = std::fs::read_to_string(&self.0).map_err(failed)?;
        std::fs::remove_file(&self.0).map_err(failed)?;
        if !list.is_empty() {
            println!("\nnot run on this machine:\n{list}");
        }
        Ok(())
    }
}
