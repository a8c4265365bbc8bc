//! Files and directories that only their owner can read, whatever the umask.
//!
//! A new file has mode 0600 from its first byte, a new directory 0700. [`restrict`] tightens what an older
//! program, a backup tool or an administrator left readable, and logs a warning: until then others could have
//! read it. Where the platform has no Unix permissions, files get the platform's defaults.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

/// Opens a file for reading and writing, creating it empty with mode 0600 if it does not exist.
///
/// An existing file keeps its content and its mode: see [`restrict`].
pub fn open_or_create(path: &Path) -> io::Result<File> {
    match create_new(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            OpenOptions::new().read(true).write(true).open(path)
        }
        created => created,
    }
}

/// Creates a file with mode 0600. Fails if the path exists.
pub fn create_new(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    mode::of_file(&mut options);
    let file = options.open(path)?;
    // A umask can only take bits away. This gives the owner's back.
    mode::set(&file)?;
    Ok(file)
}

/// Replaces a file's content atomically: readers and a crash see the old content or the new, never a part.
///
/// The new file has mode 0600, also where the old one had another.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    replace(path, content, true)
}

/// Replaces a file's content as [`write`] does, without waiting for the disk. For files that need not survive a
/// power failure: a sync takes milliseconds.
pub fn write_unsynced(path: &Path, content: &[u8]) -> io::Result<()> {
    replace(path, content, false)
}

fn replace(path: &Path, content: &[u8], sync: bool) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let temporary = temporary_name(path);
    let written = create_new(&temporary).and_then(|mut file| {
        file.write_all(content)?;
        if !sync {
            return fs::rename(&temporary, path);
        }
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        File::open(directory)?.sync_all()
    });
    if written.is_err() {
        // Absent if it could not be created. Left over, it is harmless and private.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// A name in the same directory that no other process or thread uses.
fn temporary_name(path: &Path) -> PathBuf {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}-{}.tmp", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    name.into()
}

/// Creates a directory and its missing parents, each new one with mode 0700. Existing ones stay as they are.
pub fn create_dir_all(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    mode::of_dir(&mut builder);
    builder.create(path)
}

/// Takes every permission of group and others off a file or directory that has some, and logs a warning.
/// Returns whether it had any.
pub fn restrict(path: &Path) -> io::Result<bool> {
    let restricted = mode::restrict(path)?;
    if restricted {
        tracing::warn!(
            path = %path.display(),
            "others had access to this path; its permissions are now restricted to the owner"
        );
    }
    Ok(restricted)
}

#[cfg(unix)]
mod mode {
    use std::{
        fs::{DirBuilder, File, OpenOptions, Permissions},
        io,
        os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
        path::Path,
    };

    const FILE: u32 = 0o600;
    const DIR: u32 = 0o700;
    const GROUP_AND_OTHERS: u32 = 0o077;

    pub(super) fn of_file(options: &mut OpenOptions) {
        options.mode(FILE);
    }

    pub(super) fn of_dir(builder: &mut DirBuilder) {
        builder.mode(DIR);
    }

    pub(super) fn set(file: &File) -> io::Result<()> {
        if file.metadata()?.permissions().mode() & 0o777 == FILE {
            return Ok(());
        }
        file.set_permissions(Permissions::from_mode(FILE))
    }

    pub(super) fn restrict(path: &Path) -> io::Result<bool> {
        let mode = path.metadata()?.permissions().mode();
        let open = mode & GROUP_AND_OTHERS != 0;
        if open {
            std::fs::set_permissions(path, Permissions::from_mode(mode & 0o7777 & !GROUP_AND_OTHERS))?;
        }
        Ok(open)
    }
}

#[cfg(not(unix))]
mod mode {
    use std::{
        fs::{DirBuilder, File, OpenOptions},
        io,
        path::Path,
    };

    pub(super) fn of_file(_: &mut OpenOptions) {}

    pub(super) fn of_dir(_: &mut DirBuilder) {}

    pub(super) fn set(_: &File) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn restrict(_: &Path) -> io::Result<bool> {
        Ok(false)
    }
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn write_replaces_content_and_mode() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        write(&path, b"new").unwrap();
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"new".to_vec(), 0o600));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn new_files_and_directories_are_private() {
        let dir = tempfile::tempdir().unwrap();
        let nested = dir.path().join("a/b");
        create_dir_all(&nested).unwrap();
        assert_eq!((mode(&dir.path().join("a")), mode(&nested)), (0o700, 0o700));
        let file = nested.join("file");
        open_or_create(&file).unwrap().write_all(b"x").unwrap();
        assert_eq!(mode(&file), 0o600);
        open_or_create(&file).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"x", "an existing file keeps its content");
        assert_eq!(create_new(&file).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn restrict_takes_permissions_from_group_and_others_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o764)).unwrap();
        assert!(restrict(&path).unwrap());
        assert_eq!(mode(&path), 0o700);
        assert!(!restrict(&path).unwrap());
    }
}
