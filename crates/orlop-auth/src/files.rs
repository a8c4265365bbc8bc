//! Files that are followed: a change is noticed by their modification time, size and inode.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Interval at which files are checked for changes.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Files, and the state in which they were read.
#[derive(Debug)]
pub struct Files {
    paths: Vec<PathBuf>,
    stamps: Vec<Option<Stamp>>,
    checked: Instant,
}

/// Modification time, size and inode: a file that was replaced has another inode, even within the
/// clock's resolution.
type Stamp = (i64, i64, u64, u64);

impl Files {
    /// Returns files that are about to be read: a change in between is noticed.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        let stamps = stamps(&paths);
        Self { paths, stamps, checked: Instant::now() }
    }

    /// Returns true once for each change since the files were read. Looks at most every few seconds.
    pub fn changed(&mut self) -> bool {
        if self.checked.elapsed() < CHECK_INTERVAL {
            return false;
        }
        self.checked = Instant::now();
        self.changed_now()
    }

    /// Returns true once for each change since the files were read.
    pub fn changed_now(&mut self) -> bool {
        let stamps = stamps(&self.paths);
        let changed = stamps != self.stamps;
        self.stamps = stamps;
        changed
    }
}

fn stamps(paths: &[PathBuf]) -> Vec<Option<Stamp>> {
    paths.iter().map(|path| stamp(path)).collect()
}

fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.mtime(), metadata.mtime_nsec(), metadata.size(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_files_have_changed_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let mut files = Files::new(vec![path.clone()]);
        assert!(!files.changed_now());
        fs::write(&path, "1").unwrap();
        assert!(files.changed_now() && !files.changed_now());
        let other = folder.path().join("b");
        fs::write(&other, "2").unwrap();
        fs::rename(&other, &path).unwrap();
        assert!(files.changed_now() && !files.changed_now());
    }
}
