//! Steps that are named, timed and summed up; the first that fails ends the chore.

use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

/// Steps done so far.
#[derive(Default)]
pub(crate) struct Steps {
    done: Vec<(&'static str, Duration)>,
}

impl Steps {
    /// Does one step and says how long it took.
    pub(crate) fn step(
        &mut self,
        name: &'static str,
        work: impl FnOnce() -> Result<(), String>,
    ) -> Result<(), String> {
        println!("==> {name}");
        let started = Instant::now();
        let outcome = work();
        let took = started.elapsed();
        self.done.push((name, took));
        match outcome {
            Ok(()) => {
                println!("    {name}: ok in {:.1} s", took.as_secs_f64());
                Ok(())
            }
            Err(reason) => {
                self.summary("FAILED");
                Err(format!("\n{name} failed: {reason}"))
            }
        }
    }

    /// Prints every step with its time; `last` is how the last one ended.
    pub(crate) fn summary(&self, last: &str) {
        println!("\n{:<34} {:>8}", "step", "seconds");
        for (index, (name, took)) in self.done.iter().enumerate() {
            let outcome = if index + 1 == self.done.len() { last } else { "ok" };
            println!("{name:<34} {:>8.1}  {outcome}", took.as_secs_f64());
        }
        let total: Duration = self.done.iter().map(|(_, took)| *took).sum();
        println!("{:<34} {:>8.1}", "total", total.as_secs_f64());
    }
}

/// Runs cargo in the workspace, with its output shown.
pub(crate) fn cargo(arguments: &[&str]) -> Result<(), String> {
    cargo_with(arguments, &[])
}

/// Runs cargo in the workspace with environment variables, with its output shown.
pub(crate) fn cargo_with(arguments: &[&str], variables: &[(&str, &OsStr)]) -> Result<(), String> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let status = Command::new(program)
        .args(arguments)
        .envs(variables.iter().copied())
        .current_dir(root())
        .status()
        .map_err(|error| format!("cargo could not be run: {error}"))?;
    if status.success() {
        return Ok(());
    }
    Err(format!("`cargo {}` ended with {status}", arguments.join(" ")))
}

/// The workspace's folder.
pub(crate) fn root() -> PathBuf {
    // Cargo says at run time where this clone is: one target directory may serve several, of which another built this
    // program.
    let here = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let here = PathBuf::from(here);
    here.parent().map_or(here.clone(), PathBuf::from)
}
