//! Where programs and packages for tests are kept.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A folder of the cache, which is made if need be.
pub(crate) fn folder(name: &str) -> Result<PathBuf, String> {
    let home = std::env::var_os("HOME").ok_or("HOME is not set: there is no place for tools")?;
    let cache = std::env::var_os("ORLOP_TOOLS")
        .map_or_else(|| Path::new(&home).join(".cache/orlop-tools"), PathBuf::from);
    let folder = cache.join(name);
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

/// Tests run in many processes: one of them fills a folder, the others wait until this is dropped.
pub(crate) fn lock(folder: &Path) -> Result<fs::File, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let lock = fs::File::create(folder.join("lock")).map_err(failed)?;
    lock.lock().map_err(failed)?;
    Ok(lock)
}
