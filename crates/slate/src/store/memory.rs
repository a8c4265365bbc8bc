//! The memory store: persistent B-trees, so that a snapshot is a clone and a roll-back an assignment.

use std::{
    borrow::Cow,
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use imbl::OrdMap;
use parking_lot::RwLock;

use super::{Cursor, Direction, Range, Reader, Space, Store, Writer, bytes::Bytes};
use crate::error::Result;

/// Value of a key: shared between the tree's versions, so that a copied node copies no documents.
type Value = Option<Arc<[u8]>>;
type Tree = OrdMap<Bytes, Value>;

/// All spaces at one moment.
#[derive(Clone, Debug, Default)]
struct State {
    spaces: OrdMap<Space, Tree>,
    size_bytes: u64,
}

/// A store in memory. Its contents end with it.
#[derive(Debug, Default)]
pub struct MemoryStore {
    committed: RwLock<State>,
    size_bytes: AtomicU64,
}

impl Store for MemoryStore {
    fn snapshot(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(self.committed.read().clone()))
    }

    fn begin(&self) -> Result<Box<dyn Writer + '_>> {
        let state = self.committed.read().clone();
        Ok(Box::new(Transaction { store: self, savepoint: state.clone(), state }))
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

impl Reader for State {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        let value = self.spaces.get(&space).and_then(|tree| tree.get(key));
        Ok(value.map(|value| Cow::Borrowed(as_slice(value))))
    }

    fn cursor(&self, space: Space, range: &Range, direction: Direction) -> Result<Box<dyn Cursor + '_>> {
        let Some(tree) = self.spaces.get(&space).filter(|_| !range.is_empty()) else {
            return Ok(Box::new(Empty));
        };
        let start = Bound::Included(range.start.as_slice());
        let end = range.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let entries = tree.range::<_, [u8]>((start, end));
        let entry: (&[u8], &[u8]) = (&[], &[]);
        Ok(match direction {
            Direction::Forward => Box::new(TreeCursor { entries, entry }),
            Direction::Backward => Box::new(TreeCursor { entries: entries.rev(), entry }),
        })
    }
}

struct Transaction<'a> {
    store: &'a MemoryStore,
    state: State,
    savepoint: State,
}

impl Reader for Transaction<'_> {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        self.state.get(space, key)
    }

    fn cursor(&self, space: Space, range: &Range, direction: Direction) -> Result<Box<dyn Cursor + '_>> {
        self.state.cursor(space, range, direction)
    }
}

impl Writer for Transaction<'_> {
    fn put(&mut self, space: Space, key: &[u8], value: &[u8]) {
        let stored = (!value.is_empty()).then(|| Arc::from(value));
        let old = self.state.spaces.entry(space).or_default().insert(Bytes::new(key), stored);
        let removed = old.map_or(0, |old| key.len() + as_slice(&old).len());
        self.state.size_bytes += (key.len() + value.len()) as u64;
        self.state.size_bytes -= removed as u64;
    }

    fn delete(&mut self, space: Space, key: &[u8]) {
        let removed = self.state.spaces.get_mut(&space).and_then(|tree| tree.remove(key));
        if let Some(removed) = removed {
            self.state.size_bytes -= (key.len() + as_slice(&removed).len()) as u64;
        }
    }

    fn drop_space(&mut self, space: Space) {
        if let Some(tree) = self.state.spaces.remove(&space) {
            let size: usize =
                tree.iter().map(|(key, value)| key.as_slice().len() + as_slice(value).len()).sum();
            self.state.size_bytes -= size as u64;
        }
    }

    fn savepoint(&mut self) {
        self.savepoint = self.state.clone();
    }

    fn roll_back(&mut self) {
        self.state = self.savepoint.clone();
    }

    fn as_reader(&self) -> &dyn Reader {
        self
    }

    fn commit(self: Box<Self>) -> Result<()> {
        self.store.size_bytes.store(self.state.size_bytes, Ordering::Relaxed);
        let superseded = std::mem::replace(&mut *self.store.committed.write(), self.state);
        // Freed outside of the lock.
        drop(superseded);
        Ok(())
    }
}

fn as_slice(value: &Value) -> &[u8] {
    value.as_deref().unwrap_or_default()
}

struct TreeCursor<'a, I> {
    entries: I,
    entry: (&'a [u8], &'a [u8]),
}

impl<'a, I: Iterator<Item = (&'a Bytes, &'a Value)>> Cursor for TreeCursor<'a, I> {
    fn advance(&mut self) -> Result<bool> {
        match self.entries.next() {
            Some((key, value)) => {
                self.entry = (key.as_slice(), as_slice(value));
                Ok(true)
            }
            None => Ok(false),
        }
    }

    fn key(&self) -> &[u8] {
        self.entry.0
    }

    fn value(&self) -> &[u8] {
        self.entry.1
    }
}

struct Empty;

impl Cursor for Empty {
    fn advance(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn key(&self) -> &[u8] {
        &[]
    }

    fn value(&self) -> &[u8] {
        &[]
    }
}
