//! Disk space set aside so that deletes and a restart succeed on a full disk.
//!
//! A file beside the database keeps space allocated. When a write fails for lack of space, most of it is
//! released and the store refuses puts: deletes and compaction use the released space, and free more. The rest
//! stays until a start that finds no space. Once the disk has room for the whole reserve and some more, the
//! reserve is allocated again and puts are accepted.
//!
//! The reserve also covers the growth of the database by the next checkpoint. A checkpoint that ran out of space would
//! leave the write-ahead log as it is, and the log could only be appended to: deletes would soon fail as well.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

use super::files::companion;
use crate::{
    error::{Error, Result},
    private_files,
};

/// Free space beyond the reserve before puts are accepted again, so that the state does not flap.
const HEADROOM: u64 = 1 << 20;
/// Share of the reserve that only a start may use.
const START_SHARE: u64 = 4;

/// Growth that is covered beyond what is known to be needed, so that most commits allocate nothing.
const GROWTH_STEP: u64 = 1 << 20;
/// Pages of tables and indexes that a batch adds to the database besides its values, as a share of them.
const OVERHEAD_SHARE: u64 = 4;

/// The reserve of one database.
#[derive(Debug)]
pub(super) struct DiskReserve {
    database: PathBuf,
    path: PathBuf,
    /// Space for deletes and a start; 0 if there is no reserve.
    base: u64,
    /// Size of the whole reserve: the base and the covered growth.
    bytes: AtomicU64,
    growth: Mutex<Growth>,
    released: AtomicBool,
}

/// Growth of the database file by the next checkpoint.
#[derive(Debug, Default)]
struct Growth {
    /// Growth when it was measured.
    measured: u64,
    /// End of the write-ahead log then. Each byte after it adds at most one to the growth.
    log_end: u64,
}

impl DiskReserve {
    /// Allocates the reserve, or starts without one if the disk has no room.
    pub(super) fn open(database: &Path, bytes: u64) -> Self {
        let reserve = Self {
            database: database.to_owned(),
            path: companion(database, "-reserve"),
            base: bytes,
            bytes: AtomicU64::new(bytes),
            growth: Mutex::default(),
            released: AtomicBool::new(false),
        };
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

    /// Covers the growth of the database by the next checkpoint, once a batch is in the write-ahead log. `pages_bytes`
    /// returns the size of the database with the pages in the log. If there is no room, puts are refused from now on.
    pub(super) fn cover(
        &self,
        log_end: u64,
        batch_bytes: u64,
        pages_bytes: impl FnOnce() -> Result<u64>,
    ) -> Result<()> {
        if self.base == 0 {
            return Ok(());
        }
        let mut growth = self.growth();
        let batch = batch_bytes + batch_bytes / OVERHEAD_SHARE;
        let needed = growth.measured + log_end.saturating_sub(growth.log_end) + batch;
        let restarted = log_end < growth.log_end;
        if !restarted && self.base + needed <= self.bytes.load(Ordering::Acquire) {
            return Ok(());
        }
        *growth = self.measure(log_end, pages_bytes()?);
        let bytes = self.base + growth.measured + batch + GROWTH_STEP;
        if self.bytes.swap(bytes, Ordering::AcqRel) < bytes || self.len() > bytes + GROWTH_STEP {
            self.resize(bytes);
        }
        Ok(())
    }

    /// Measures the growth anew after a checkpoint, if puts are refused: less may be missing now than when they were.
    pub(super) fn copied(&self, log_end: u64, pages_bytes: impl FnOnce() -> Result<u64>) -> Result<()> {
        if self.released.load(Ordering::Acquire) {
            let mut growth = self.growth();
            *growth = self.measure(log_end, pages_bytes()?);
            self.bytes.store(self.base + growth.measured + GROWTH_STEP, Ordering::Release);
        }
        Ok(())
    }

    fn measure(&self, log_end: u64, pages_bytes: u64) -> Growth {
        let file_bytes = self.database.metadata().map_or(0, |file| file.len());
        Growth { measured: pages_bytes.saturating_sub(file_bytes), log_end }
    }

    /// Runs a checkpoint. If the disk is full, the space that is set aside for its growth is released, and it runs again.
    pub(super) fn spend<T>(&self, checkpoint: impl Fn() -> Result<T>) -> Result<T> {
        match checkpoint() {
            Err(Error::Full(_)) if self.base > 0 => {
                self.release();
                checkpoint()
            }
            checkpointed => checkpointed,
        }
    }

    fn growth(&self) -> MutexGuard<'_, Growth> {
        self.growth.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn resize(&self, bytes: u64) {
        let resized = match self.len() {
            _ if self.released.load(Ordering::Acquire) => return,
            length if length > bytes => self.shrink(bytes).is_ok(),
            _ => self.allocate(bytes).is_ok(),
        };
        if !resized {
            self.refuse_puts();
        }
    }

    fn shrink(&self, bytes: u64) -> io::Result<()> {
        private_files::open_or_create(&self.path)?.set_len(bytes)
    }

    fn refuse_puts(&self) {
        if !self.released.swap(true, Ordering::AcqRel) {
            tracing::error!("the disk is full: puts are refused until there is space");
        }
    }

    /// Releases space for deletes and a checkpoint after a write has failed.
    pub(super) fn release(&self) {
        self.refuse_puts();
        let kept = self.base / START_SHARE;
        if self.len() > kept
            && let Err(error) = self.shrink(kept)
        {
            tracing::warn!(%error, path = %self.path.display(), "cannot release the disk reserve");
        }
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
        let bytes = self.bytes.load(Ordering::Acquire);
        let missing = bytes.saturating_sub(self.len());
        let has_room = free_bytes(&self.path).is_ok_and(|free| free >= missing + HEADROOM);
        let restored = has_room && self.allocate(bytes).is_ok();
        if restored && self.released.swap(false, Ordering::AcqRel) {
            tracing::debug!(bytes, "disk reserve allocated");
        }
        restored
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        let mut file = private_files::open_or_create(&self.path)?;
        match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                let zeros = vec![0; 64 << 10];
                for _ in 0..bytes.div_ceil(zeros.len() as u64) {
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
