//! Reads of spaces that are on disk only.

use std::borrow::Cow;

use rocksdb::{DB, DBPinnableSlice, DBRawIteratorWithThreadMode, ReadOptions, SnapshotWithThreadMode};

use super::{
    super::{Cursor, Direction, Lookup, Range, Reader, Space},
    store_error,
};
use crate::error::Result;

/// A snapshot of RocksDB.
pub(super) struct Snapshot<'a> {
    db: &'a DB,
    /// Reads of the snapshot, prepared once. Declared before the snapshot that it refers to.
    options: ReadOptions,
    inner: SnapshotWithThreadMode<'a, DB>,
}

impl<'a> Snapshot<'a> {
    pub(super) fn new(db: &'a DB) -> Self {
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

/// Keys passed on the way to the requested one, before a look-up gives up on reading in order.
const STEPS_MAX: usize = 4;
/// Look-ups in a row that were not near the last one, after which an iterator no longer pays.
const FAR_MAX: usize = 4;

/// Look-ups that step an iterator while the requested keys are close to each other and ascending, as the `_id`s
/// of an index entry often are. A step costs a tenth of a point read.
struct RocksLookup<'a> {
    snapshot: &'a Snapshot<'a>,
    /// The space, then the requested key.
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

/// Returns a key of a space as RocksDB has it.
pub(super) fn full_key(space: Space, key: &[u8]) -> Vec<u8> {
    let mut full = Vec::with_capacity(4 + key.len());
    full.extend_from_slice(&space.to_be_bytes());
    full.extend_from_slice(key);
    full
}
