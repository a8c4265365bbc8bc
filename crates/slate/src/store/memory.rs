//! The memory store: persistent B+trees, so that a snapshot is a clone and a roll-back an assignment.

use std::{
    borrow::Cow,
    sync::atomic::{AtomicU64, Ordering},
};

use imbl::OrdMap;
use parking_lot::RwLock;

use super::{
    Cursor, Direction, Join, Lookup, Range, Reader, Space, Store, Writer,
    tree::{Tree, TreeCursor, TreeJoin, TreeLookup},
};
use crate::error::Result;

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

    fn read(&self, space: Space, key: &[u8], read: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        read(self.committed.read().spaces.get(&space).and_then(|tree| tree.get(key)));
        Ok(())
    }

    fn is_in_memory(&self) -> bool {
        true
    }

    fn commits_without_blocking(&self) -> bool {
        true
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
        Ok(self.spaces.get(&space).and_then(|tree| tree.get(key)).map(Cow::Borrowed))
    }

    fn cursor(&self, space: Space, range: &Range, direction: Direction) -> Result<Box<dyn Cursor + '_>> {
        Ok(match self.spaces.get(&space) {
            Some(tree) => Box::new(TreeCursor::new(tree, range, direction)),
            None => Box::new(Empty),
        })
    }

    fn lookup(&self, space: Space) -> Result<Box<dyn Lookup + '_>> {
        Ok(match self.spaces.get(&space) {
            Some(tree) => Box::new(TreeLookup::new(tree)),
            None => Box::new(Empty),
        })
    }

    fn join(
        &self,
        index: Space,
        range: &Range,
        direction: Direction,
        values: Space,
    ) -> Option<Box<dyn Join + '_>> {
        let (index, values) = (self.spaces.get(&index)?, self.spaces.get(&values)?);
        Some(Box::new(TreeJoin::new(index, range, direction, values)))
    }
}

struct Transaction<'a> {
    store: &'a MemoryStore,
    state: State,
    savepoint: State,
}

impl Transaction<'_> {
    /// Changes a space and keeps the size in step.
    fn change(&mut self, space: Space, change: impl FnOnce(&mut Tree)) {
        let tree = self.state.spaces.entry(space).or_default();
        let before = tree.size();
        change(tree);
        self.state.size_bytes = self.state.size_bytes + tree.size() - before;
    }
}

impl Reader for Transaction<'_> {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        self.state.get(space, key)
    }

    fn cursor(&self, space: Space, range: &Range, direction: Direction) -> Result<Box<dyn Cursor + '_>> {
        self.state.cursor(space, range, direction)
    }

    fn lookup(&self, space: Space) -> Result<Box<dyn Lookup + '_>> {
        self.state.lookup(space)
    }

    fn join(
        &self,
        index: Space,
        range: &Range,
        direction: Direction,
        values: Space,
    ) -> Option<Box<dyn Join + '_>> {
        self.state.join(index, range, direction, values)
    }
}

impl Writer for Transaction<'_> {
    fn put(&mut self, space: Space, key: &[u8], value: &[u8]) {
        self.change(space, |tree| tree.insert(key, value));
    }

    fn delete(&mut self, space: Space, key: &[u8]) {
        self.change(space, |tree| {
            tree.remove(key);
        });
    }

    fn drop_space(&mut self, space: Space) {
        if let Some(tree) = self.state.spaces.remove(&space) {
            self.state.size_bytes -= tree.size();
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

/// A space without entries.
pub(super) struct Empty;

impl Cursor for Empty {
    fn advance(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn seek(&mut self, _key: &[u8]) -> Result<bool> {
        Ok(false)
    }

    fn key(&self) -> &[u8] {
        &[]
    }

    fn value(&self) -> &[u8] {
        &[]
    }
}

impl Lookup for Empty {
    fn get(&mut self, _key: &[u8]) -> Result<Option<&[u8]>> {
        Ok(None)
    }
}
