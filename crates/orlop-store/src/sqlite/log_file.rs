//! The file of the write-ahead log, laid out ahead of the writer.
//!
//! A sync of a file that has grown waits for the file system's own records as well, which takes about as long
//! again. So zeros are appended to the log before the writer gets there, many commits' worth at a time, and the
//! syncs between are of data alone. (Space that is only set aside, as `fallocate` does, does not help: that it is
//! written to for the first time has to be recorded too.)
//!
//! Zeros are no part of the log: SQLite reads frames up to the first that is not whole, and a frame of zeros is
//! not. Nor can they cover any frame, whichever process is at the file, as they are only ever appended: what is
//! written is before them, and what is written next goes over them.

use std::{
    fs::File,
    io::{self, Write},
    sync::{Arc, Mutex, PoisonError},
};

use super::checkpoint::Gauge;

/// Zeros appended in one go: about as much as there is already, so that a store which is hardly written to
/// stays small.
const STEP_MIN: u64 = 64 << 10;
const STEP_MAX: u64 = 1 << 20;
/// Zeros in one call. A writer at the same file waits for that.
const PIECE: &[u8] = &[0; 64 << 10];
/// What is left when more are appended.
const LEFT: u64 = 32 << 10;
/// Commits that wait for their data rather than for the file system's records.
const LARGE: u64 = 128 << 10;
/// How long the file may become by this. A longer one is cut to this length when the log is begun anew.
pub(super) const FILE_MAX: u64 = 64 << 20;

/// The file of the log.
#[derive(Debug)]
pub(super) struct LogFile {
    file: Arc<File>,
    gauge: Arc<Gauge>,
    laid_out: Mutex<LaidOut>,
}

#[derive(Debug, Default)]
struct LaidOut {
    /// Where the log ended at the last look.
    end: u64,
    /// Where the file ended then, as far as it matters.
    file_end: u64,
}

impl LogFile {
    /// A file that is open for appending, whose log is as long as `gauge` says.
    pub(super) fn new(file: Arc<File>, gauge: Arc<Gauge>) -> Self {
        Self { file, gauge, laid_out: Mutex::default() }
    }

    /// Brings the log to the disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Lays the file out ahead if the writer is about to reach its end. To be followed by a sync.
    pub(super) fn lay_out(&self) {
        let mut laid_out = self.laid_out.lock().unwrap_or_else(PoisonError::into_inner);
        let end = self.gauge.bytes();
        let grown = end.checked_sub(laid_out.end);
        laid_out.end = end;
        if grown.is_none() {
            // Begun anew, and the file perhaps cut.
            laid_out.file_end = 0;
        }
        if grown.is_none_or(|grown| grown > LARGE) || end + LEFT <= laid_out.file_end || end >= FILE_MAX {
            return;
        }
        // Without room on the disk the writer is told so when it needs some, not by this.
        laid_out.file_end = self.append(end).unwrap_or(u64::MAX);
    }

    /// Appends zeros; where the file ends then.
    fn append(&self, log_end: u64) -> io::Result<u64> {
        let mut file_end = self.file.metadata()?.len();
        let enough = log_end + log_end.clamp(STEP_MIN, STEP_MAX);
        while file_end < enough.min(FILE_MAX) {
            (&*self.file).write_all(PIECE)?;
            file_end += PIECE.len() as u64;
        }
        Ok(file_end)
    }
}
