//! hostPath volumes: checks of their type.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// Checks the path of a hostPath volume, or creates it if its type says so.
pub(super) fn check(path: &str, kind: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(path);
    let found = fs::metadata(&path).ok().map(|found| found.file_type());
    let fail = |what: &str| Err(format!("hostPath type check failed: {} is not {what}", path.display()));
    let create = |mode: u32, created: std::io::Result<()>| {
        created
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(mode)))
            .map_err(|error| format!("cannot create {}: {error}", path.display()))
    };
    match (kind, found) {
        ("DirectoryOrCreate", None) => create(0o755, fs::create_dir_all(&path))?,
        ("DirectoryOrCreate" | "Directory", found) if !found.is_some_and(|found| found.is_dir()) => {
            return fail("a directory");
        }
        ("FileOrCreate", None) => create(0o644, fs::write(&path, ""))?,
        ("FileOrCreate" | "File", found) if !found.is_some_and(|found| found.is_file()) => {
            return fail("a file");
        }
        ("Socket", found) if !found.is_some_and(|found| found.is_socket()) => return fail("a socket file"),
        ("CharDevice", found) if !found.is_some_and(|found| found.is_char_device()) => {
            return fail("a character device");
        }
        ("BlockDevice", found) if !found.is_some_and(|found| found.is_block_device()) => {
            return fail("a block device");
        }
        // A runtime creates the directory that a mount without a type needs.
        ("", None) => create(0o755, fs::create_dir_all(Path::new(&path)))?,
        _ => {}
    }
    Ok(path)
}
