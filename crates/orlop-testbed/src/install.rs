//! Finding or installing PostgreSQL's programs.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::shell::{is_root, run};

/// Programs that a cluster needs. `initdb` and `postgres` are often not in PATH.
const NEEDED: [&str; 4] = ["initdb", "pg_ctl", "postgres", "psql"];

/// Returns the directory of PostgreSQL's programs, of the newest version.
pub fn find() -> Option<PathBuf> {
    let mut versions: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    versions.sort();
    let in_path: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    let found = versions.into_iter().rev().map(|(_, folder)| folder).chain(in_path);
    let complete = |folder: &PathBuf| NEEDED.iter().all(|program| folder.join(program).exists());
    found.into_iter().find(complete)
}

/// Finds the directory as [`find`] does, or installs Debian's package if this process may.
pub fn find_or_install() -> Result<PathBuf, String> {
    if let Some(folder) = find() {
        return Ok(folder);
    }
    let advice = "PostgreSQL is not installed: install the package `postgresql` (Debian, Ubuntu), \
                  `postgresql-server` (Fedora) or `postgresql` (Homebrew), or put initdb, pg_ctl, postgres \
                  and psql into PATH";
    if !Path::new("/usr/bin/apt-get").exists() || !is_root()? {
        return Err(advice.to_owned());
    }
    install().map_err(|error| format!("{advice}\n(apt-get was tried: {error})"))?;
    find().ok_or_else(|| advice.to_owned())
}

fn install() -> Result<(), String> {
    // Keep Debian's package from creating and starting a cluster of its own.
    let settings = Path::new("/etc/postgresql-common");
    let file = settings.join("createcluster.conf");
    if !file.exists() {
        fs::create_dir_all(settings)
            .and_then(|()| fs::write(&file, "create_main_cluster = false\n"))
            .map_err(|error| format!("{} could not be written: {error}", file.display()))?;
    }
    packages(&["postgresql", "openssl"])
}

/// Finds a C++ compiler and libclang, which RocksDB and its bindings are built with, or installs Debian's packages
/// if this process may.
pub fn find_or_install_libclang() -> Result<(), String> {
    if has_libclang() && has_program("c++") {
        return Ok(());
    }
    packages(&["g++", "libclang-dev"])
}

fn has_libclang() -> bool {
    let llvm = fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path().join("lib"));
    let folders = llvm.chain(["/usr/lib".into(), "/usr/lib64".into(), "/usr/lib/x86_64-linux-gnu".into()]);
    let given = std::env::var_os("LIBCLANG_PATH").map(PathBuf::from);
    folders.chain(given).any(|folder| {
        let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
        names.into_iter().any(|name| name.to_string_lossy().starts_with("libclang.so"))
    })
}

fn has_program(name: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(name).exists()))
}

/// Installs Debian packages, if this process may.
pub(crate) fn packages(names: &[&str]) -> Result<(), String> {
    if !Path::new("/usr/bin/apt-get").exists() || !is_root()? {
        return Err(format!("install {} (this process may not)", names.join(" and ")));
    }
    let apt = || {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    run(apt().args(["update", "--quiet"]))?;
    let quiet = ["install", "--yes", "--quiet", "--no-install-recommends"];
    run(apt().args(quiet).args(["-o", "Dpkg::Options::=--force-confold"]).args(names)).map(drop)
}
