//! Disk space set aside so that deletes and a restart succeed on a full disk.
//!
//! A file beside the database keeps space allocated. When a write fails for lack of space, most of it is
//! released and the store refuses puts: deletes and compaction use the released space, and free more. The rest
//! stays until a start that finds no space. Once the disk has room for the whole reserve and some more, the
//! reserve is allocated again and puts are accepted.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

use super::pool::companion;
use crate::{
    error::{Error, Result},
    private_files,
};

/// Free space beyond the reserve before puts are accepted again, so that the state does not flap.
const HEADROOM: u64 = 1 << 20;
/// Share of the reserve that only a start may use.
const START_SHARE: u64 = 4;

/// The reserve of one database.
#[derive(Debug)]
pub(super) struct DiskReserve {
    path: PathBuf,
    bytes: u64,
    released: AtomicBool,
}

impl DiskReserve {
    /// Allocates the reserve, or starts without one if the disk has no room.
    pub(super) fn open(database: &Path, bytes: u64) -> Self {
        let path = companion(database, "-reserve");
        let reserve = Self { path, bytes, released: AtomicBool::new(false) };
        if bytes > 0 && reserve.len() < bytes {
            reserve.released.store(true, Ordering::Release);
            if !reserve.restore() {
                tracing::warn!(path = %reserve.path.display(), "the disk has no room for the reserve: puts are refused");
            }
        }
        reserve
    }

    /// Removes the reserve of a database that cannot be opened because its disk is full. Returns whether that
    /// freed space.
    pub(super) fn release_for_start(database: &Path) -> bool {
        let path = companion(database, "-reserve");
        let full = free_bytes(&path).is_ok_and(|free| free < HEADROOM);
        full && std::fs::remove_file(path).is_ok()
    }

    /// Releases space for deletes after a write has failed. Returns whether there was any to release.
    pub(super) fn release(&self) -> bool {
        let kept = self.bytes / START_SHARE;
        if !self.released.swap(true, Ordering::AcqRel) {
            tracing::error!("the disk is full: puts are refused until there is space");
        }
        let shrink = || private_files::open_or_create(&self.path)?.set_len(kept);
        self.len() > kept && shrink().is_ok()
    }

    /// Fails while the disk has no room for puts.
    pub(super) fn check(&self) -> Result<()> {
        if self.released.load(Ordering::Acquire) && !self.restore() {
            return Err(Error::Full(
                "the disk is full: only deletes are accepted until there is space".into(),
            ));
        }
        Ok(())
    }

    /// Allocates the reserve again if the disk has room. Returns whether it is whole.
    fn restore(&self) -> bool {
        let missing = self.bytes.saturating_sub(self.len());
        let has_room = free_bytes(&self.path).is_ok_and(|free| free >= missing + HEADROOM);
        let restored = has_room && self.allocate().is_ok();
        if restored && self.released.swap(false, Ordering::AcqRel) {
            tracing::debug!(bytes = self.bytes, "disk reserve allocated");
        }
        restored
    }

    fn allocate(&self) -> io::Result<()> {
        let mut file = private_files::open_or_create(&self.path)?;
        match fallocate(&file, FallocateFlags::empty(), 0, self.bytes) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                let zeros = vec![0; 64 << 10];
                for _ in 0..self.bytes.div_ceil(zeros.len() as u64) {
                    file.write_all(&zeros)?;
                }
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn len(&self) -> u64 {
        self.path.metadata().map_or(0, |file| file.len())
    }
}

/// Returns the free bytes of the file system that a path is on.
fn free_bytes(path: &Path) -> io::Result<u64> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let free = statvfs(directory)?;
    Ok(free.f_bavail.saturating_mul(free.f_frsize))
}
