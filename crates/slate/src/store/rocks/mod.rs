//! The RocksDB store.
//!
//! Spaces share one column family; a key is the space's number, big-endian, and the key. A commit is one
//! write batch with a synced write-ahead log: RocksDB applies it to the memtable only after the sync, so a
//! reader never sees what a crash could lose.
//!
//! Spaces that fit a budget are in memory, too, and are read there (`resident`). A commit publishes their new
//! trees right after RocksDB has taken its batch. Readers of the disk compare sequence numbers, so that they
//! never see one without the other.

mod directory;
mod disk;
mod log;
mod resident;

use std::{borrow::Cow, path::Path};

use parking_lot::RwLock;
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, DBRecoveryMode, DataBlockIndexType, Options,
    WriteOptions,
};

use self::{
    disk::{Snapshot, full_key},
    log::{Log, Mark},
    resident::{Residence, Spaces},
};
use super::{
    Cursor, Direction, Join, Lookup, Range, Reader, Space, Store, Writer,
    memory::Empty,
    overlay::Changes,
    tree::{TreeCursor, TreeJoin, TreeLookup},
};
use crate::error::{Error, Result};

/// Settings of the RocksDB store.
#[derive(Debug, Clone)]
pub struct RocksOptions {
    /// Most bytes of keys and values that are held in memory as well. They take about 1.5 times as much.
    pub resident_bytes: u64,
    /// Size of the block cache, for what is not.
    pub cache_bytes: usize,
    /// Size of a memtable.
    pub memtable_bytes: usize,
    /// Sync the write-ahead log at every commit. Without it a crash of the machine loses what was
    /// acknowledged last; benchmarks only.
    pub sync: bool,
}

impl Default for RocksOptions {
    fn default() -> Self {
        Self { resident_bytes: 128 << 20, cache_bytes: 64 << 20, memtable_bytes: 32 << 20, sync: true }
    }
}

/// A durable store in a directory.
pub struct RocksStore {
    db: DB,
    sync: bool,
    resident_bytes: u64,
    /// The committed state.
    published: RwLock<Spaces>,
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
        let is_new = directory::check_format(path).map_err(refuse)?;
        let data = path.join("rocks");
        let db = DB::open(&database_options(options), &data).map_err(|error| refuse(explain(&error)))?;
        if is_new {
            directory::write_format(path).map_err(refuse)?;
        }
        let spaces = Spaces::load(&db, options.resident_bytes)
            .map_err(|error| refuse(format!("damaged ({error})")))?;
        let resident_bytes = options.resident_bytes;
        Ok(Self { db, sync: options.sync, resident_bytes, published: RwLock::new(spaces) })
    }

    /// Returns true if a state is the last that RocksDB has. What was read from RocksDB before belongs to it then:
    /// nothing newer was there to read, and nothing older, since a state is published after its batch.
    fn is_current(&self, spaces: &Spaces) -> bool {
        self.db.latest_sequence_number() == spaces.sequence
    }

    fn view(&self) -> View<'_> {
        loop {
            let spaces = self.published.read().clone();
            if spaces.is_complete() {
                return View { spaces, disk: None };
            }
            let disk = Snapshot::new(&self.db);
            if self.is_current(&spaces) {
                return View { spaces, disk: Some(disk) };
            }
            // RocksDB shows a commit that is about to be published.
            std::thread::yield_now();
        }
    }
}

fn database_options(settings: &RocksOptions) -> Options {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&Cache::new_lru_cache(settings.cache_bytes));
    table.set_bloom_filter(10.0, false);
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_write_buffer_size(settings.memtable_bytes);
    options.set_max_background_jobs(2);
    // There is one writer. Its keys are in order, and find their place faster without concurrency.
    options.set_allow_concurrent_memtable_write(false);
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
        Ok(Box::new(self.view()))
    }

    fn read(&self, space: Space, key: &[u8], read: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        loop {
            let spaces = self.published.read();
            match spaces.get(space) {
                None => read(None),
                Some(Residence::Memory(tree)) => read(tree.get(key)),
                Some(Residence::Disk) => {
                    let value = self.db.get_pinned(full_key(space, key)).map_err(store_error)?;
                    if !self.is_current(&spaces) {
                        // As in `view`.
                        drop(spaces);
                        std::thread::yield_now();
                        continue;
                    }
                    read(value.as_deref());
                }
            }
            return Ok(());
        }
    }

    fn is_in_memory(&self) -> bool {
        self.published.read().is_complete()
    }

    fn commits_without_blocking(&self) -> bool {
        false
    }

    fn begin(&self) -> Result<Box<dyn Writer + '_>> {
        let view = self.view();
        let savepoint = (view.spaces.clone(), Changes::default(), Mark::default());
        Ok(Box::new(Transaction {
            store: self,
            view,
            changes: Changes::default(),
            log: Log::default(),
            savepoint,
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

/// A state, with the snapshot of the same moment if some of it is on disk only.
struct View<'a> {
    spaces: Spaces,
    disk: Option<Snapshot<'a>>,
}

impl View<'_> {
    /// Returns the reader of a space that is on disk.
    fn disk(&self) -> Result<&dyn Reader> {
        match &self.disk {
            Some(disk) => Ok(disk),
            None => Err(Error::corrupt("a space on disk in a view without a snapshot")),
        }
    }
}

impl Reader for View<'_> {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        match self.spaces.get(space) {
            None => Ok(None),
            Some(Residence::Memory(tree)) => Ok(tree.get(key).map(Cow::Borrowed)),
            Some(Residence::Disk) => self.disk()?.get(space, key),
        }
    }

    fn cursor(&self, space: Space, range: &Range, direction: Direction) -> Result<Box<dyn Cursor + '_>> {
        match self.spaces.get(space) {
            None => Ok(Box::new(Empty)),
            Some(Residence::Memory(tree)) => Ok(Box::new(TreeCursor::new(tree, range, direction))),
            Some(Residence::Disk) => self.disk()?.cursor(space, range, direction),
        }
    }

    fn lookup(&self, space: Space) -> Result<Box<dyn Lookup + '_>> {
        match self.spaces.get(space) {
            None => Ok(Box::new(Empty)),
            Some(Residence::Memory(tree)) => Ok(Box::new(TreeLookup::new(tree))),
            Some(Residence::Disk) => self.disk()?.lookup(space),
        }
    }

    fn join(
        &self,
        index: Space,
        range: &Range,
        direction: Direction,
        values: Space,
    ) -> Option<Box<dyn Join + '_>> {
        match (self.spaces.get(index)?, self.spaces.get(values)?) {
            (Residence::Memory(index), Residence::Memory(values)) => {
                Some(Box::new(TreeJoin::new(index, range, direction, values)))
            }
            _ => None,
        }
    }
}

struct Transaction<'a> {
    store: &'a RocksStore,
    /// The state with the changes of spaces in memory.
    view: View<'a>,
    /// Changes of spaces on disk.
    changes: Changes,
    log: Log,
    savepoint: (Spaces, Changes, Mark),
}

impl Transaction<'_> {
    /// Returns true if a space has changes that are not in the view.
    fn is_on_disk(&self, space: Space) -> bool {
        matches!(self.view.spaces.get(space), Some(Residence::Disk))
    }
}

impl Reader for Transaction<'_> {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        match self.is_on_disk(space) {
            true => self.changes.get(self.view.disk()?, space, key),
            false => self.view.get(space, key),
        }
    }

    fn cursor(&self, space: Space, range: &Range, direction: Direction) -> Result<Box<dyn Cursor + '_>> {
        match self.is_on_disk(space) {
            true => self.changes.cursor(self.view.disk()?, space, range, direction),
            false => self.view.cursor(space, range, direction),
        }
    }

    fn lookup(&self, space: Space) -> Result<Box<dyn Lookup + '_>> {
        match self.is_on_disk(space) {
            true => self.changes.lookup(self.view.disk()?, space),
            false => self.view.lookup(space),
        }
    }

    fn join(
        &self,
        index: Space,
        range: &Range,
        direction: Direction,
        values: Space,
    ) -> Option<Box<dyn Join + '_>> {
        // Changes of spaces in memory are in the view.
        self.view.join(index, range, direction, values)
    }
}

impl Writer for Transaction<'_> {
    fn put(&mut self, space: Space, key: &[u8], value: &[u8]) {
        if !self.view.spaces.change(space, |tree| tree.insert(key, value)) {
            self.changes.put(space, key, value);
        }
        self.log.put(space, key, value);
    }

    fn delete(&mut self, space: Space, key: &[u8]) {
        let deleted = self.view.spaces.change(space, |tree| {
            tree.remove(key);
        });
        if !deleted {
            self.changes.delete(space, key);
        }
        self.log.delete(space, key);
    }

    fn drop_space(&mut self, space: Space) {
        self.view.spaces.drop_space(space);
        self.log.drop_space(space);
    }

    fn savepoint(&mut self) {
        self.savepoint = (self.view.spaces.clone(), self.changes.clone(), self.log.mark());
    }

    fn roll_back(&mut self) {
        let (spaces, changes, mark) = &self.savepoint;
        (self.view.spaces, self.changes) = (spaces.clone(), changes.clone());
        self.log.truncate(*mark);
    }

    fn as_reader(&self) -> &dyn Reader {
        self
    }

    fn commit(self: Box<Self>) -> Result<()> {
        if self.log.is_empty() {
            return Ok(());
        }
        let Self { store, view, log, .. } = *self;
        let mut spaces = view.spaces;
        spaces.evict(store.resident_bytes);
        let mut options = WriteOptions::default();
        options.set_sync(store.sync);
        let written = store.db.write_opt(log.into_batch(), &options).map_err(store_error);
        let mut published = store.published.write();
        if written.is_ok() {
            std::mem::swap(&mut *published, &mut spaces);
        }
        // Also after a failure, which may have used up numbers.
        published.sequence = store.db.latest_sequence_number();
        drop(published);
        // Freed outside of the lock.
        drop(spaces);
        written
    }
}
