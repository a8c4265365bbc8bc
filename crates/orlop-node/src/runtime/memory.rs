//! Memory of a pod: a folder on the machine's tmpfs, for volumes of the medium `Memory`.

use std::{
    fs::{self, DirBuilder, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::statfs;

/// A tmpfs on every Linux, for POSIX shared memory.
const SHARED_MEMORY: &str = "/dev/shm";
/// Magic number of a tmpfs.
const TMPFS: i64 = 0x0102_1994;
/// A container's user may pass through, and see nothing of other volumes.
const MODE: u32 = 0o711;

fn folder(uid: &str) -> PathBuf {
    Path::new(SHARED_MEMORY).join(format!("orlop-pod-{uid}"))
}

/// Creates the folder of a pod, if it is not there.
pub(crate) fn create(uid: &str) -> io::Result<PathBuf> {
    let is_tmpfs = statfs(SHARED_MEMORY).is_ok_and(|found| found.f_type == TMPFS);
    if !is_tmpfs {
        return Err(io::Error::other(format!("medium Memory needs a tmpfs at {SHARED_MEMORY}")));
    }
    let folder = folder(uid);
    match DirBuilder::new().mode(0o700).create(&folder) {
        Ok(()) => fs::set_permissions(&folder, Permissions::from_mode(MODE))?,
        // Nobody else's: everybody may create files there.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => check_owner(&folder)?,
        Err(error) => return Err(error),
    }
    Ok(folder)
}

fn check_owner(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let found = fs::symlink_metadata(folder)?;
    if found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    Err(io::Error::other(format!("{} belongs to somebody else", folder.display())))
}

/// Removes the folder of a pod.
pub(super) fn remove(uid: &str) -> io::Result<()> {
    let folder = folder(uid);
    if !folder.exists() {
        return Ok(());
    }
    check_owner(&folder)?;
    fs::remove_dir_all(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_is_on_a_tmpfs_until_removed() {
        let uid = format!("test-{}", std::process::id());
        let created = create(&uid).unwrap();
        assert_eq!(create(&uid).unwrap(), created);
        fs::write(created.join("file"), "x").unwrap();
        remove(&uid).unwrap();
        assert!(!created.exists());
        remove(&uid).unwrap();
    }
}
