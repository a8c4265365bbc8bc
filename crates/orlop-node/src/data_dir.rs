//! The node's directory: tokens, secrets and environments of pods are in it, and only its owner may read them.

use std::{
    fs::{self, DirBuilder, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::Path,
};

const PRIVATE: u32 = 0o700;
const GROUP_AND_OTHERS: u32 = 0o077;
/// Folders that are the node's own, whatever else the directory holds: containers and volumes, and logs.
const FOLDERS: &[&str] = &["pods", "logs"];

/// Creates the directory and the folders in it. Folders that others have access to are taken away from them; the directory
/// itself may be shared with other programs, and stays as it is if it exists.
pub(crate) fn create(data_dir: &Path) -> io::Result<()> {
    private(data_dir)?;
    for name in FOLDERS {
        let folder = data_dir.join(name);
        private(&folder)?;
        let mode = fs::metadata(&folder)?.permissions().mode();
        if mode & GROUP_AND_OTHERS != 0 {
            tracing::warn!(path = %folder.display(), "others had access to this folder of pods; now they have none");
            fs::set_permissions(&folder, Permissions::from_mode(mode & 0o7777 & !GROUP_AND_OTHERS))?;
        }
    }
    Ok(())
}

/// Creates a folder, and its parents, for its owner only.
fn private(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(PRIVATE).create(folder)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn files_of_pods_are_for_the_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let new = folder.path().join("new/node");
        create(&new).unwrap();
        assert_eq!([mode(&new), mode(&new.join("pods")), mode(&new.join("logs"))], [PRIVATE; 3]);
        // As an earlier program left it.
        let old = folder.path().join("old");
        fs::create_dir_all(old.join("pods")).unwrap();
        for path in [&old, &old.join("pods")] {
            fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        }
        create(&old).unwrap();
        assert_eq!([mode(&old), mode(&old.join("pods")), mode(&old.join("logs"))], [0o755, PRIVATE, PRIVATE]);
    }
}
