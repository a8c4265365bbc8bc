//! The cache of programs and packages for tests.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Returns a directory of the cache, creating it if needed.
pub(crate) fn folder(name: &str) -> Result<PathBuf, String> {
    let home = std::env::var_os("HOME").ok_or("HOME is not set: there is no place for tools")?;
    let cache = std::env::var_os("ORLOP_TOOLS")
        .map_or_else(|| Path::new(&home).join(".cache/orlop-tools"), PathBuf::from);
    let folder = cache.join(name);
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

/// Lock on a directory of the cache: of many test processes one fills it, the others wait until this is dropped.
pub(crate) fn lock(folder: &Path) -> Result<fs::File, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let lock = fs::File::create(folder.join("lock")).map_err(failed)?;
    lock.lock().map_err(failed)?;
    Ok(lock)
}
