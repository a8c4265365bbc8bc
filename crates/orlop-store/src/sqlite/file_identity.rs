//! Detects that the database was removed or replaced while it is open.
//!
//! SQLite goes on writing to the files that it has opened. If their paths lead elsewhere, or nowhere, those
//! writes are lost with the process, so nothing may be acknowledged any more.

use std::{
    io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use super::files::companion;

/// Device and inode numbers.
type FileId = (u64, u64);

/// The files of an open database.
///
/// They are identified by path alone. Closing a descriptor of the database would drop the locks that SQLite
/// holds on it in this process.
#[derive(Debug)]
pub(super) struct FileIdentity {
    files: Vec<(PathBuf, FileId)>,
    lost: AtomicBool,
}

impl FileIdentity {
    /// Records the database and its write-ahead log, which must exist.
    pub(super) fn of(database: &Path) -> io::Result<Self> {
        let paths = [database.to_owned(), companion(database, "-wal")];
        let files = paths.into_iter().map(|path| Ok((path.clone(), file_id(&path)?)));
        Ok(Self { files: files.collect::<io::Result<_>>()?, lost: AtomicBool::new(false) })
    }

    /// Fails once a path no longer leads to the file that was opened.
    pub(super) fn check(&self) -> io::Result<()> {
        for (path, opened) in &self.files {
            if file_id(path).ok() != Some(*opened) {
                let reason = format!("{} was removed or replaced while it was open", path.display());
                if !self.lost.swap(true, Ordering::AcqRel) {
                    tracing::error!("{reason}: writes are refused until a restart");
                }
                return Err(io::Error::other(reason));
            }
        }
        Ok(())
    }
}

#[cfg(unix)]
fn file_id(path: &Path) -> io::Result<FileId> {
    use std::os::unix::fs::MetadataExt;
    let file = path.metadata()?;
    Ok((file.dev(), file.ino()))
}

#[cfg(not(unix))]
fn file_id(path: &Path) -> io::Result<FileId> {
    path.metadata().map(|_| (0, 0))
}
