//! The RocksDB store.
//!
//! Spaces share one column family; a key is the space's number, big-endian, and the key. A commit is one
//! write batch with a synced write-ahead log: RocksDB applies it to the memtable only after the sync, so a
//! reader never sees what a crash could lose.

use std::{
    borrow::Cow,
    fs,
    path::{Path, PathBuf},
};

use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, DBPinnableSlice, DBRawIteratorWithThreadMode,
    DBRecoveryMode, Options, ReadOptions, SnapshotWithThreadMode, WriteBatch, WriteOptions,
};

use super::{Cursor, Direction, Lookup, Range, Reader, Space, Store, Writer, overlay::Changes};
use crate::error::{Error, Result};

/// Names the format of a data directory, so that a foreign or future one is refused.
const FORMAT_FILE: &str = "SLATE_FORMAT";
const FORMAT: &str = "slate rocks 1\n";

/// Settings of the RocksDB store.
#[derive(Debug, Clone)]
pub struct RocksOptions {
    /// Size of the block cache.
    pub cache_bytes: usize,
    /// Size of a memtable.
    pub memtable_bytes: usize,
    /// Sync the write-ahead log at every commit. Without it a crash of the machine loses what was
    /// acknowledged last; benchmarks only.
    pub sync: bool,
}

impl Default for RocksOptions {
    fn default() -> Self {
        Self { cache_bytes: 128 << 20, memtable_bytes: 32 << 20, sync: true }
    }
}

/// A durable store in a directory.
pub struct RocksStore {
    db: DB,
    sync: bool,
}

impl std::fmt::Debug for RocksStore {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("RocksStore").field("path", &self.db.path()).finish_non_exhaustive()
    }
}

impl RocksStore {
    /// Opens or creates a store. Fails if the directory holds something else, is damaged, or is in use.
    pub fn open(path: &Path, options: &RocksOptions) -> Result<Self> {
        let refuse = |reason: String| Error::DataDirectory { path: path.display().to_string(), reason };
        let is_new = check_format(path).map_err(refuse)?;
        let data = path.join("rocks");
        let db = DB::open(&database_options(options), &data).map_err(|error| refuse(explain(&error)))?;
        if is_new {
            write_format(path).map_err(refuse)?;
        }
        Ok(Self { db, sync: options.sync })
    }
}

/// Returns true if the directory is empty or missing, and an error if it is not one of ours.
fn check_format(path: &Path) -> std::result::Result<bool, String> {
    fs::create_dir_all(path).map_err(|error| error.to_string())?;
    match fs::read_to_string(path.join(FORMAT_FILE)) {
        Ok(format) if format == FORMAT => {
            if path.join("rocks/CURRENT").exists() {
                Ok(false)
            } else {
                Err("damaged: it is marked as Slate's, but RocksDB's CURRENT file is missing".to_owned())
            }
        }
        Ok(format) => Err(format!("written in another format: {:?}", format.trim_end())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let entries = fs::read_dir(path).map_err(|error| error.to_string())?;
            // A crash before the format file was written leaves `rocks`; filesystems leave `lost+found`.
            let ours = |name: &std::ffi::OsStr| name == "rocks" || name == "lost+found";
            let foreign = entries.flatten().map(|entry| entry.file_name()).find(|name| !ours(name));
            match foreign {
                Some(name) => Err(format!("not Slate's: it contains {}", PathBuf::from(name).display())),
                None => Ok(true),
            }
        }
        Err(error) => Err(format!("{FORMAT_FILE}: {error}")),
    }
}

fn write_format(path: &Path) -> std::result::Result<(), String> {
    let write = || -> std::io::Result<()> {
        let temporary = path.join("SLATE_FORMAT.new");
        fs::write(&temporary, FORMAT)?;
        fs::File::open(&temporary)?.sync_all()?;
        fs::rename(&temporary, path.join(FORMAT_FILE))?;
        fs::File::open(path)?.sync_all()
    };
    write().map_err(|error| format!("{FORMAT_FILE}: {error}"))
}

fn database_options(settings: &RocksOptions) -> Options {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&Cache::new_lru_cache(settings.cache_bytes));
    table.set_bloom_filter(10.0, false);
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_write_buffer_size(settings.memtable_bytes);
    options.set_max_background_jobs(2);
    options.set_keep_log_file_num(2);
    // A torn record at the end of the log was never acknowledged; damage before it is an error.
    options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
    options.set_paranoid_checks(true);
    options
}

fn explain(error: &rocksdb::Error) -> String {
    let text = error.to_string();
    if text.contains("lock") || text.contains("LOCK") {
        format!("in use by another process ({text})")
    } else if matches!(error.kind(), rocksdb::ErrorKind::Corruption) {
        format!("damaged ({text})")
    } else {
        text
    }
}

fn store_error(error: rocksdb::Error) -> Error {
    match error.kind() {
        rocksdb::ErrorKind::Corruption => Error::Corrupt(error.into_string()),
        _ => Error::Store(error.into_string()),
    }
}

impl Store for RocksStore {
    fn snapshot(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(Snapshot::new(&self.db)))
    }

    fn read(&self, space: Space, key: &[u8], read: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        read(self.db.get_pinned(full_key(space, key)).map_err(store_error)?.as_deref());
        Ok(())
    }

    fn begin(&self) -> Result<Box<dyn Writer + '_>> {
        Ok(Box::new(Transaction {
            store: self,
            base: Snapshot::new(&self.db),
            changes: Changes::default(),
            savepoint: Changes::default(),
        }))
    }

    fn size_bytes(&self) -> u64 {
        let property = |name: &str| self.db.property_int_value(name).ok().flatten().unwrap_or(0);
        property("rocksdb.total-sst-files-size") + property("rocksdb.cur-size-all-mem-tables")
    }

    fn flush(&self) -> Result<()> {
        self.db.flush().map_err(store_error)
    }
}

struct Snapshot<'a> {
    db: &'a DB,
    /// Reads of the snapshot, prepared once. Declared before the snapshot that it refers to.
    options: ReadOptions,
    inner: SnapshotWithThreadMode<'a, DB>,
}

impl<'a> Snapshot<'a> {
    fn new(db: &'a DB) -> Self {
        let inner = db.snapshot();
        let mut options = ReadOptions::default();
        options.set_snapshot(&inner);
        Self { db, options, inner }
    }

    fn pinned(&self, key: &[u8]) -> Result<Option<DBPinnableSlice<'a>>> {
        self.db.get_pinned_opt(key, &self.options).map_err(store_error)
    }
}

impl Reader for Snapshot<'_> {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        Ok(self.pinned(&full_key(space, key))?.map(|value| Cow::Owned(value.to_vec())))
    }

    fn lookup(&self, space: Space) -> Result<Box<dyn Lookup + '_>> {
        Ok(Box::new(RocksLookup {
            snapshot: self,
            key: space.to_be_bytes().to_vec(),
            end: (space + 1).to_be_bytes().to_vec(),
            near: None,
            far: 0,
            value: None,
        }))
    }

    fn cursor(&self, space: Space, range: &Range, direction: Direction) -> Result<Box<dyn Cursor + '_>> {
        let mut options = ReadOptions::default();
        let end = match &range.end {
            Some(end) => full_key(space, end),
            None => (space + 1).to_be_bytes().to_vec(),
        };
        let start = full_key(space, &range.start);
        let empty = end <= start;
        options.set_iterate_lower_bound(start);
        options.set_iterate_upper_bound(end);
        let mut entries = self.inner.raw_iterator_opt(options);
        if !empty {
            match direction {
                Direction::Forward => entries.seek_to_first(),
                Direction::Backward => entries.seek_to_last(),
            }
        }
        Ok(Box::new(RocksCursor { entries, space, direction, started: empty, empty }))
    }
}

struct RocksCursor<'a> {
    entries: DBRawIteratorWithThreadMode<'a, DB>,
    space: Space,
    direction: Direction,
    started: bool,
    empty: bool,
}

impl Cursor for RocksCursor<'_> {
    fn advance(&mut self) -> Result<bool> {
        if self.empty {
            return Ok(false);
        }
        if self.started {
            match self.direction {
                Direction::Forward => self.entries.next(),
                Direction::Backward => self.entries.prev(),
            }
        }
        self.settle()
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        if self.empty {
            return Ok(false);
        }
        self.entries.seek(full_key(self.space, key));
        self.settle()
    }

    fn key(&self) -> &[u8] {
        if !self.started {
            return &[];
        }
        self.entries.key().and_then(|key| key.get(4..)).unwrap_or_default()
    }

    fn value(&self) -> &[u8] {
        self.entries.value().unwrap_or_default()
    }
}

impl RocksCursor<'_> {
    /// Returns true if the iterator stands on an entry.
    fn settle(&mut self) -> Result<bool> {
        self.started = true;
        if self.entries.valid() {
            return Ok(true);
        }
        self.empty = true;
        self.entries.status().map_err(store_error)?;
        Ok(false)
    }
}

/// Keys passed on the way to the wanted one, before a look-up gives up on reading in order.
const STEPS_MAX: usize = 4;
/// Look-ups in a row that were not near the last one, after which an iterator no longer pays.
const FAR_MAX: usize = 4;

/// Look-ups that step an iterator while the wanted keys are close to each other and ascending, as the `_id`s
/// of an index entry often are. A step costs a tenth of a point read.
struct RocksLookup<'a> {
    snapshot: &'a Snapshot<'a>,
    /// The space, then the wanted key.
    key: Vec<u8>,
    end: Vec<u8>,
    /// Stands on the key of the last look-up, or after it.
    near: Option<DBRawIteratorWithThreadMode<'a, DB>>,
    far: usize,
    value: Option<DBPinnableSlice<'a>>,
}

impl RocksLookup<'_> {
    /// Tries to reach the key by stepping. `None`: it is not near.
    fn step(&mut self) -> Result<Option<bool>> {
        let Some(entries) = &mut self.near else { return Ok(None) };
        for _ in 0..=STEPS_MAX {
            let Some(key) = entries.key() else {
                entries.status().map_err(store_error)?;
                return Ok(None);
            };
            match key.cmp(self.key.as_slice()) {
                std::cmp::Ordering::Less => entries.next(),
                std::cmp::Ordering::Equal => return Ok(Some(true)),
                // Behind: either the key does not exist, or look-ups are not in order.
                std::cmp::Ordering::Greater => return Ok(None),
            }
        }
        Ok(None)
    }
}

impl Lookup for RocksLookup<'_> {
    fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>> {
        self.key.truncate(4);
        self.key.extend_from_slice(key);
        self.value = None;
        if self.step()? == Some(true) {
            self.far = 0;
            return Ok(self.near.as_ref().and_then(DBRawIteratorWithThreadMode::value));
        }
        self.far += 1;
        if self.far > FAR_MAX {
            self.near = None;
            self.value = self.snapshot.pinned(&self.key)?;
            return Ok(self.value.as_deref());
        }
        let (snapshot, end) = (self.snapshot, &self.end);
        let entries = self.near.get_or_insert_with(|| {
            let mut options = ReadOptions::default();
            options.set_iterate_upper_bound(end.clone());
            snapshot.inner.raw_iterator_opt(options)
        });
        entries.seek(&self.key);
        entries.status().map_err(store_error)?;
        Ok(entries.item().filter(|(key, _)| *key == self.key.as_slice()).map(|(_, value)| value))
    }
}

struct Transaction<'a> {
    store: &'a RocksStore,
    base: Snapshot<'a>,
    changes: Changes,
    savepoint: Changes,
}

impl Reader for Transaction<'_> {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        self.changes.get(&self.base, space, key)
    }

    fn cursor(&self, space: Space, range: &Range, direction: Direction) -> Result<Box<dyn Cursor + '_>> {
        self.changes.cursor(&self.base, space, range, direction)
    }

    fn lookup(&self, space: Space) -> Result<Box<dyn Lookup + '_>> {
        self.changes.lookup(&self.base, space)
    }
}

impl Writer for Transaction<'_> {
    fn put(&mut self, space: Space, key: &[u8], value: &[u8]) {
        self.changes.put(space, key, value);
    }

    fn delete(&mut self, space: Space, key: &[u8]) {
        self.changes.delete(space, key);
    }

    fn drop_space(&mut self, space: Space) {
        self.changes.drop_space(space);
    }

    fn savepoint(&mut self) {
        self.savepoint = self.changes.clone();
    }

    fn roll_back(&mut self) {
        self.changes = self.savepoint.clone();
    }

    fn as_reader(&self) -> &dyn Reader {
        self
    }

    fn commit(self: Box<Self>) -> Result<()> {
        if self.changes.is_empty() {
            return Ok(());
        }
        let mut batch = WriteBatch::default();
        for space in self.changes.dropped() {
            batch.delete_range(space.to_be_bytes(), (space + 1).to_be_bytes());
        }
        let mut full = Vec::with_capacity(64);
        self.changes.visit(|space, key, change| {
            full.clear();
            full.extend_from_slice(&space.to_be_bytes());
            full.extend_from_slice(key);
            match change {
                Some(value) => batch.put(&full, value),
                None => batch.delete(&full),
            }
        })?;
        let mut options = WriteOptions::default();
        options.set_sync(self.store.sync);
        self.store.db.write_opt(batch, &options).map_err(store_error)
    }
}

fn full_key(space: Space, key: &[u8]) -> Vec<u8> {
    let mut full = Vec::with_capacity(4 + key.len());
    full.extend_from_slice(&space.to_be_bytes());
    full.extend_from_slice(key);
    full
}
