//! Ordered key-value stores below the engine.
//!
//! A store holds *spaces*: ordered maps from key to value, named by number. It offers snapshots for any
//! number of readers and one write transaction at a time, which is atomic and, on a durable store, on disk
//! when `commit` returns. A store knows nothing of documents, collections or indexes.

mod bytes;
mod memory;
#[cfg(any(test, feature = "rocks"))]
mod overlay;
#[cfg(feature = "rocks")]
mod rocks;
mod tree;

use std::borrow::Cow;

pub use memory::MemoryStore;
#[cfg(feature = "rocks")]
pub use rocks::{RocksOptions, RocksStore};

use crate::error::Result;

/// Number of a space. Numbers are never reused.
pub type Space = u32;

/// An ordered key-value store.
pub trait Store: std::fmt::Debug + Send + Sync {
    /// Opens a snapshot of the last committed state.
    fn snapshot(&self) -> Result<Box<dyn Reader + '_>>;

    /// Reads one key of the last committed state, and hands its value to `read`. Cheaper than a snapshot.
    fn read(&self, space: Space, key: &[u8], read: &mut dyn FnMut(Option<&[u8]>)) -> Result<()>;

    /// Returns true if reads do not wait for a disk.
    fn is_in_memory(&self) -> bool;

    /// Returns true if commits do not wait for a disk.
    fn commits_without_blocking(&self) -> bool;

    /// Begins a write transaction. The caller has at most one open at a time.
    fn begin(&self) -> Result<Box<dyn Writer + '_>>;

    /// Returns the size of what is stored, in bytes, as far as the store knows.
    fn size_bytes(&self) -> u64;

    /// Writes everything to its final place. Called at shutdown.
    fn flush(&self) -> Result<()>;
}

/// A consistent view.
pub trait Reader {
    /// Returns the value of a key.
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>>;

    /// Opens a cursor over a range.
    fn cursor(&self, space: Space, range: &Range, direction: Direction) -> Result<Box<dyn Cursor + '_>>;

    /// Opens a sequence of point reads.
    fn lookup(&self, space: Space) -> Result<Box<dyn Lookup + '_>>;

    /// Opens a join of a range of index entries with the values that they name in another space, if both are in memory.
    fn join(
        &self,
        _index: Space,
        _range: &Range,
        _direction: Direction,
        _values: Space,
    ) -> Option<Box<dyn Join + '_>> {
        None
    }
}

/// Entries of an index with the values that they name. Faster than a cursor and a look-up, for no key is copied.
pub trait Join {
    /// Reads the next entries, at most `count` and [`Keys::MAX`], and looks up the keys that `key_of` finds in them.
    /// `visit` gets each key and its value until it returns false.
    fn next(&mut self, count: usize, key_of: KeyOf<'_>, visit: VisitFound<'_>) -> Result<Joined>;
}

/// Finds a key in an index entry.
pub type KeyOf<'a> = &'a dyn Fn(&[u8]) -> Result<&[u8]>;

/// Outcome of a step of a join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Joined {
    /// Entries read. Fewer than asked for: there are no more.
    pub entries: usize,
    /// Last answer of `visit`.
    pub more: bool,
}

/// Point reads in one space. It remembers its place, so a key near the last one is found at once.
pub trait Lookup {
    /// Returns the value of a key.
    fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>>;

    /// Looks up several keys. `visit` gets each, in order, and its value, until it returns false. Returns what it
    /// returned last.
    fn get_all(&mut self, keys: &Keys, visit: VisitFound<'_>) -> Result<bool> {
        for key in keys.iter() {
            if !visit(key, self.get(key)?)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Gets a key and its value, and returns false to stop.
pub type VisitFound<'a> = &'a mut dyn FnMut(&[u8], Option<&[u8]>) -> Result<bool>;

/// A few keys, in one buffer.
#[derive(Debug)]
pub struct Keys {
    bytes: Vec<u8>,
    /// Where each key begins and ends.
    spans: Vec<(u32, u32)>,
}

impl Default for Keys {
    fn default() -> Self {
        Self { bytes: Vec::with_capacity(Self::MAX * 16), spans: Vec::with_capacity(Self::MAX) }
    }
}

impl Keys {
    /// Most keys.
    pub const MAX: usize = 16;

    /// Appends a key. The caller appends at most [`Keys::MAX`].
    pub fn push(&mut self, key: &[u8]) {
        debug_assert!(self.spans.len() < Self::MAX);
        let from = self.bytes.len() as u32;
        self.bytes.extend_from_slice(key);
        self.spans.push((from, self.bytes.len() as u32));
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns true if there is no key.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns the keys in the order in which they were appended.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.spans.iter().map(|(from, to)| &self.bytes[*from as usize..*to as usize])
    }
}

/// A write transaction, which reads its own writes.
pub trait Writer: Reader {
    /// Sets a key, which has at most 24 KiB.
    fn put(&mut self, space: Space, key: &[u8], value: &[u8]);

    /// Deletes a key.
    fn delete(&mut self, space: Space, key: &[u8]);

    /// Deletes a whole space. It must not be written again.
    fn drop_space(&mut self, space: Space);

    /// Remembers the present state for [`Writer::roll_back`].
    fn savepoint(&mut self);

    /// Returns to the last savepoint.
    fn roll_back(&mut self);

    /// Returns the reading half.
    fn as_reader(&self) -> &dyn Reader;

    /// Commits.
    fn commit(self: Box<Self>) -> Result<()>;
}

/// A position in a range. It starts before the first key.
pub trait Cursor {
    /// Moves to the next key. Returns false at the end.
    fn advance(&mut self) -> Result<bool>;

    /// Moves ahead to the first key at or after this one, which must not be behind. Returns false at the end.
    /// For cursors that move forward.
    fn seek(&mut self, key: &[u8]) -> Result<bool>;

    /// Returns the present key; before the first, nothing.
    fn key(&self) -> &[u8];

    /// Returns the present value.
    fn value(&self) -> &[u8];
}

/// Keys from `start`, inclusive, to `end`, exclusive. No end: to the end of the space.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Range {
    /// First key.
    pub start: Vec<u8>,
    /// First key after the range.
    pub end: Option<Vec<u8>>,
}

impl Range {
    /// Returns the range of every key.
    pub fn all() -> Self {
        Self::default()
    }

    /// Returns the range of the keys with a prefix.
    pub fn prefix(prefix: &[u8]) -> Self {
        Self { start: prefix.to_vec(), end: crate::key::prefix_successor(prefix) }
    }

    /// Returns true if no key can be in the range.
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }
}

/// Direction of a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}
