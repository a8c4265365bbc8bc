//! Python virtual environments with packages from PyPI.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{install, shell::run, tools};

/// Returns the interpreter of an environment with these packages (`name==version`). The first call creates it,
/// also for other processes.
pub fn environment(name: &str, packages: &[&str]) -> Result<PathBuf, String> {
    let folder = tools::folder(name)?;
    let _alone = tools::lock(&folder)?;
    let (environment, ready) = (folder.join("environment"), folder.join("ready"));
    let interpreter = environment.join("bin/python");
    let wanted = packages.join("\n");
    if fs::read_to_string(&ready).is_ok_and(|made| made == wanted) && interpreter.exists() {
        return Ok(interpreter);
    }
    make(&environment, &interpreter, packages).map_err(|error| {
        format!(
            "{error}\nThese tests run Python with packages from PyPI: they need python3 with venv (Debian: \
             python3-venv), and PyPI or a mirror that pip knows the first time."
        )
    })?;
    fs::write(&ready, wanted).map_err(|error| format!("{}: {error}", ready.display()))?;
    Ok(interpreter)
}

/// Returns the interpreter of the environment with MongoDB's driver.
pub fn pymongo() -> Result<PathBuf, String> {
    environment("python-pymongo", &["pymongo==4.19.0"])
}

/// Returns the interpreter of the environment with simulators of AWS: moto and ministack.
pub fn aws_simulators() -> Result<PathBuf, String> {
    environment("python-aws", &["moto[server]==5.2.5", "ministack==1.5.33"])
}

fn make(environment: &Path, interpreter: &Path, packages: &[&str]) -> Result<(), String> {
    let venv = || run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(environment));
    if let Err(error) = venv() {
        install::packages(&["python3", "python3-venv"]).map_err(|more| format!("{error}\n{more}"))?;
        venv()?;
    }
    run(Command::new(interpreter).args(["-m", "pip", "install", "--quiet"]).args(packages)).map(drop)
}
