//! The data directory of a server: private to its owner, and used by one server at a time.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use orlop_store::private_files;
use tokio::task::JoinHandle;

const LOCK: &str = "lock";
/// Entries by which a directory is known to be a data directory.
const OWN_ENTRIES: &[&str] = &["orlop.db", "pki", LOCK];
/// Files that must be private, besides the database, whose permissions the store restricts.
const PRIVATE_FILES: &[&str] =
    &[LOCK, "cluster.key", "kubeconfig", "pki/admin.token", "pki/ca.crt", "pki/ca.key", "pki/sa.key"];

/// An open data directory. The lock on it ends with this value, or with the process.
#[derive(Debug)]
pub(super) struct DataDir {
    path: PathBuf,
    /// Files need not survive a power failure.
    is_ephemeral: bool,
    _lock: File,
}

impl DataDir {
    /// Creates the directory if needed, restricts the permissions of what is in it, and locks it.
    pub(super) fn open(path: &Path, is_ephemeral: bool) -> anyhow::Result<Self> {
        let context = || format!("cannot use the data directory {}", path.display());
        private_files::create_dir_all(path).with_context(context)?;
        if is_own(path).with_context(context)? {
            private_files::restrict(path).with_context(context)?;
        }
        let lock = lock(path)?;
        for name in PRIVATE_FILES {
            let file = path.join(name);
            if file.try_exists().with_context(context)? {
                private_files::restrict(&file)
                    .with_context(|| format!("cannot protect {}", file.display()))?;
            }
        }
        let pki = path.join("pki");
        private_files::create_dir_all(&pki).with_context(context)?;
        private_files::restrict(&pki).with_context(context)?;
        Ok(Self { path: path.to_owned(), is_ephemeral, _lock: lock })
    }

    /// Replaces a private file atomically.
    pub(super) fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        match self.is_ephemeral {
            true => private_files::write_unsynced(path, content),
            false => private_files::write(path, content),
        }
    }

    /// Replaces a private file that every start derives anew, on another thread: waiting for the disk takes
    /// milliseconds. Atomically, unless the disk has no room for a second one: a server on a full disk must start.
    pub(super) fn start_write(&self, path: PathBuf, content: String) -> JoinHandle<anyhow::Result<()>> {
        let is_ephemeral = self.is_ephemeral;
        tokio::task::spawn_blocking(move || {
            let written = match is_ephemeral {
                true => private_files::write_unsynced(&path, content.as_bytes()),
                false => private_files::write(&path, content.as_bytes()),
            };
            let written = match written {
                Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                    overwrite(&path, content.as_bytes())
                }
                written => written,
            };
            written.with_context(|| format!("cannot write {}", path.display()))
        })
    }

    /// Returns a path in the directory.
    pub(super) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// Replaces the content of a file in the place that it has.
fn overwrite(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_content(&mut OpenOptions::new().write(true).open(path)?, content)
}

/// Replaces the content of a file that was opened. It keeps its block meanwhile: on a full disk there is no other.
fn replace_content(file: &mut File, content: &[u8]) -> io::Result<()> {
    file.write_all(content)?;
    file.set_len(content.len() as u64)
}

/// Returns whether the directory is empty or holds what a server has put there. Others, such as /tmp, may be
/// needed by other users: their permissions stay.
fn is_own(path: &Path) -> io::Result<bool> {
    const STICKY: u32 = 0o1000;
    if fs::metadata(path)?.permissions().mode() & STICKY != 0 {
        return Ok(false);
    }
    Ok(OWN_ENTRIES.iter().any(|name| path.join(name).exists()) || fs::read_dir(path)?.next().is_none())
}

fn lock(directory: &Path) -> anyhow::Result<File> {
    let path = directory.join(LOCK);
    let context = || format!("cannot lock {}", path.display());
    let mut file = private_files::open_or_create(&path).with_context(context)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let _ = file.read_to_string(&mut holder);
            bail!(
                "the data directory {} is in use by another orlop serve (process {}): stop that one, or give \
                 this one a --data-dir of its own",
                directory.display(),
                holder.trim()
            );
        }
        Err(TryLockError::Error(error)) => return Err(error).with_context(context),
    }
    replace_content(&mut file, format!("{}\n", std::process::id()).as_bytes()).with_context(context)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_overwritten_in_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        assert!(overwrite(&path, b"new").is_err(), "it takes the place of another");
        fs::write(&path, "a longer one").unwrap();
        overwrite(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }
}
