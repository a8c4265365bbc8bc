//! Node.js with packages from npm.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{install, shell::run, tools};

/// Returns a directory whose `node_modules` has these packages (`name@version`). The first call creates it, also
/// for other processes.
pub fn modules(name: &str, packages: &[&str]) -> Result<PathBuf, String> {
    let folder = tools::folder(name)?;
    let _alone = tools::lock(&folder)?;
    let ready = folder.join("ready");
    let wanted = packages.join("\n");
    if fs::read_to_string(&ready).is_ok_and(|made| made == wanted) {
        return Ok(folder);
    }
    make(&folder, packages).map_err(|error| {
        format!(
            "{error}\nThese tests run Node.js with packages from npm: they need node and npm (Debian: nodejs, \
             npm), and npm's registry or a mirror that it knows the first time."
        )
    })?;
    fs::write(&ready, wanted).map_err(|error| format!("{}: {error}", ready.display()))?;
    Ok(folder)
}

fn make(folder: &Path, packages: &[&str]) -> Result<(), String> {
    if run(Command::new("npm").arg("--version")).is_err() {
        install::packages(&["nodejs", "npm"])?;
    }
    let quiet = ["install", "--no-audit", "--no-fund", "--no-save", "--silent", "--prefix"];
    run(Command::new("npm").args(quiet).arg(folder).args(packages)).map(drop)
}
