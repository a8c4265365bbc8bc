//! Preallocates the file of the write-ahead log.
//!
//! A sync of a file that has grown waits for the file system's metadata as well, which takes about as long again. So
//! zeros are appended to the log before the writer gets there, many commits' worth at a time, and the syncs between
//! are of data alone. (Space from `fallocate` does not help: the first write to it changes metadata too.)
//!
//! Zeros are no part of the log: SQLite reads frames up to the first that is invalid, and a frame of zeros is. Nor can
//! they overwrite a frame, whichever process writes to the file, since they are only ever appended.

use std::{
    fs::File,
    io::{self, Write},
    sync::{Arc, Mutex, PoisonError},
};

use super::log_length::LogLength;

/// Zeros appended at a time: about as many bytes as the log has, so that the log of a store that is seldom written
/// stays small.
const STEP_MIN: u64 = 64 << 10;
const STEP_MAX: u64 = 1 << 20;
/// Zeros of one system call. A writer of the same file waits for it.
const CHUNK: &[u8] = &[0; 64 << 10];
/// Preallocated bytes left when more are appended.
const LOW_WATER: u64 = 32 << 10;
/// Size of commits that wait for their data rather than for metadata.
const LARGE_COMMIT: u64 = 128 << 10;
/// Maximum length of the file by preallocation. A longer one is truncated to this when the log is restarted.
pub(super) const FILE_MAX: u64 = 64 << 20;

/// The file of the write-ahead log.
#[derive(Debug)]
pub(super) struct WalFile {
    file: Arc<File>,
    length: Arc<LogLength>,
    preallocated: Mutex<Preallocated>,
}

#[derive(Debug, Default)]
struct Preallocated {
    /// The end of the log at the last check.
    log_end: u64,
    /// The end of the file at the last check, as far as it matters.
    file_end: u64,
}

impl WalFile {
    /// Takes a file that is open for appending and the length of the log in it.
    pub(super) fn new(file: Arc<File>, length: Arc<LogLength>) -> Self {
        Self { file, length, preallocated: Mutex::default() }
    }

    /// Syncs the log to the disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Extends the file if the writer is about to reach its end. To be followed by a sync.
    pub(super) fn preallocate(&self) {
        let mut preallocated = self.preallocated.lock().unwrap_or_else(PoisonError::into_inner);
        let end = self.length.bytes();
        let grown = end.checked_sub(preallocated.log_end);
        preallocated.log_end = end;
        if grown.is_none() {
            // The log was restarted, and the file perhaps truncated.
            preallocated.file_end = 0;
        }
        if grown.is_none_or(|grown| grown > LARGE_COMMIT)
            || end + LOW_WATER <= preallocated.file_end
            || end >= FILE_MAX
        {
            return;
        }
        // On a full disk the writer fails when it needs the space, not here.
        preallocated.file_end = self.append_zeros(end).unwrap_or(u64::MAX);
    }

    /// Appends zeros. Returns the new end of the file.
    fn append_zeros(&self, log_end: u64) -> io::Result<u64> {
        let mut file_end = self.file.metadata()?.len();
        let target = log_end + log_end.clamp(STEP_MIN, STEP_MAX);
        while file_end < target.min(FILE_MAX) {
            (&*self.file).write_all(CHUNK)?;
            file_end += CHUNK.len() as u64;
        }
        Ok(file_end)
    }
}
