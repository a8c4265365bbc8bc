//! `cargo xtask test`: everything that must hold before a change goes in.

use crate::{
    example, smoke,
    steps::{Steps, cargo},
    tidy,
};

pub(crate) fn run() -> Result<(), String> {
    let mut steps = Steps::default();
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
        cargo(&["test", "--workspace", "--quiet", "--no-fail-fast", "--lib", "--bins", "--tests"])
    })?;
    steps.step("examples in the documentation", || cargo(&["test", "--workspace", "--quiet", "--doc"]))?;
    steps.step("Slate on Kubernetes", example::slate)?;
    steps.step("Slate on RocksDB", || {
        // Only here: RocksDB's C++ takes minutes to compile, and nobody else needs libclang.
        orlop_testbed::find_or_install_libclang()?;
        let features = ["--features", "slate/rocks,slate-server/rocks"];
        cargo(
            &[&["test", "--package", "slate", "--package", "slate-server", "--quiet"], &features[..]]
                .concat(),
        )
    })?;
    steps.step("release build", smoke::build)?;
    steps.step("release build with kubectl", smoke::run)?;
    steps.summary("ok");
    Ok(())
}
