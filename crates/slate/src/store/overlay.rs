//! Uncommitted changes over a snapshot.

use std::{borrow::Cow, cmp::Ordering};

use imbl::OrdMap;

use super::{
    Cursor, Direction, Lookup, Range, Reader, Space,
    tree::{Tree, TreeCursor, TreeLookup},
};
use crate::error::Result;

/// First byte of a deletion.
const DELETED: u8 = 0;
/// First byte of a new value.
const SET: u8 = 1;

/// Changes not yet written. Clones are cheap, so a savepoint is a clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    /// Changed keys: `SET` and the new value, or `DELETED`.
    spaces: OrdMap<Space, Tree>,
}

impl Changes {
    pub(super) fn put(&mut self, space: Space, key: &[u8], value: &[u8]) {
        let mut change = Vec::with_capacity(value.len() + 1);
        change.push(SET);
        change.extend_from_slice(value);
        self.spaces.entry(space).or_default().insert(key, &change);
    }

    pub(super) fn delete(&mut self, space: Space, key: &[u8]) {
        self.spaces.entry(space).or_default().insert(key, &[DELETED]);
    }

    pub(super) fn get<'a>(
        &'a self,
        base: &'a dyn Reader,
        space: Space,
        key: &[u8],
    ) -> Result<Option<Cow<'a, [u8]>>> {
        if let Some(change) = self.spaces.get(&space).and_then(|tree| tree.get(key)) {
            return Ok(value(change).map(Cow::Borrowed));
        }
        base.get(space, key)
    }

    pub(super) fn lookup<'a>(&'a self, base: &'a dyn Reader, space: Space) -> Result<Box<dyn Lookup + 'a>> {
        let base = base.lookup(space)?;
        let changes = self.spaces.get(&space).map(TreeLookup::new);
        Ok(Box::new(MergedLookup { base, changes }))
    }

    pub(super) fn cursor<'a>(
        &'a self,
        base: &'a dyn Reader,
        space: Space,
        range: &Range,
        direction: Direction,
    ) -> Result<Box<dyn Cursor + 'a>> {
        let base = base.cursor(space, range, direction)?;
        let Some(tree) = self.spaces.get(&space) else { return Ok(base) };
        let changes = TreeCursor::new(tree, range, direction);
        Ok(Box::new(Merged {
            base,
            changes,
            direction,
            has_base: false,
            has_change: false,
            started: false,
            source: Source::Base,
        }))
    }
}

/// Returns the new value of a change, or nothing for a deletion.
fn value(change: &[u8]) -> Option<&[u8]> {
    match change.split_first() {
        Some((&SET, value)) => Some(value),
        _ => None,
    }
}

/// Look-ups in changes, then in their base.
struct MergedLookup<'a> {
    base: Box<dyn Lookup + 'a>,
    changes: Option<TreeLookup<'a>>,
}

impl Lookup for MergedLookup<'_> {
    fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>> {
        if let Some(changes) = &mut self.changes
            && let Some(change) = changes.get(key)?
        {
            return Ok(value(change));
        }
        self.base.get(key)
    }
}

enum Source {
    Base,
    Change,
}

/// A cursor over a base and the changes to it.
struct Merged<'a> {
    base: Box<dyn Cursor + 'a>,
    changes: TreeCursor<'a>,
    direction: Direction,
    /// True if the base stands on a key that has not been passed.
    has_base: bool,
    /// True if the changes stand on a key that has not been passed.
    has_change: bool,
    started: bool,
    source: Source,
}

impl Cursor for Merged<'_> {
    fn advance(&mut self) -> Result<bool> {
        if !self.started {
            self.started = true;
            self.has_base = self.base.advance()?;
            self.has_change = self.changes.advance()?;
        } else {
            match self.source {
                Source::Base => self.has_base = self.base.advance()?,
                Source::Change => self.has_change = self.changes.advance()?,
            }
        }
        self.settle()
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        // A half that is ahead already stays where it is.
        if !self.started || (self.has_base && self.base.key() < key) {
            self.has_base = self.base.seek(key)?;
        }
        if !self.started || (self.has_change && self.changes.key() < key) {
            self.has_change = self.changes.seek(key)?;
        }
        self.started = true;
        self.settle()
    }

    fn key(&self) -> &[u8] {
        match self.source {
            _ if !self.started => &[],
            Source::Base => self.base.key(),
            Source::Change => self.changes.key(),
        }
    }

    fn value(&self) -> &[u8] {
        match self.source {
            Source::Base => self.base.value(),
            Source::Change => value(self.changes.value()).unwrap_or_default(),
        }
    }
}

impl Merged<'_> {
    /// Decides which half is next, and passes what is superseded or deleted.
    fn settle(&mut self) -> Result<bool> {
        loop {
            let order = match (self.has_base, self.has_change) {
                (false, false) => return Ok(false),
                (true, false) => Ordering::Less,
                (false, true) => Ordering::Greater,
                (true, true) => match self.direction {
                    Direction::Forward => self.base.key().cmp(self.changes.key()),
                    Direction::Backward => self.changes.key().cmp(self.base.key()),
                },
            };
            match order {
                Ordering::Less => {
                    self.source = Source::Base;
                    return Ok(true);
                }
                // The change supersedes the base's entry.
                Ordering::Equal => self.has_base = self.base.advance()?,
                Ordering::Greater if value(self.changes.value()).is_none() => {
                    self.has_change = self.changes.advance()?;
                }
                Ordering::Greater => {
                    self.source = Source::Change;
                    return Ok(true);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::store::{MemoryStore, Store as _};

    type Model = BTreeMap<(Space, Vec<u8>), Vec<u8>>;

    fn entry() -> impl Strategy<Value = (Space, Vec<u8>, Option<u8>)> {
        (1_u32..4, proptest::collection::vec(0_u8..4, 0..3), proptest::option::of(any::<u8>()))
    }

    fn collect(cursor: &mut dyn Cursor) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut entries = Vec::new();
        while cursor.advance().expect("advance") {
            entries.push((cursor.key().to_vec(), cursor.value().to_vec()));
        }
        entries
    }

    proptest! {
        #[test]
        fn changes_over_a_base_read_like_one_map(
            base in proptest::collection::vec(entry(), 0..30),
            changes in proptest::collection::vec(entry(), 0..30),
            bounds in (proptest::collection::vec(0_u8..4, 0..3), proptest::option::of(proptest::collection::vec(0_u8..4, 0..3))),
        ) {
            let store = MemoryStore::default();
            let mut model = Model::new();
            let mut writer = store.begin().expect("begin");
            for (space, key, value) in base {
                let value = vec![value.unwrap_or(0)];
                writer.put(space, &key, &value);
                model.insert((space, key), value);
            }
            writer.commit().expect("commit");
            let mut overlay = Changes::default();
            for (space, key, value) in changes {
                match value {
                    Some(value) => {
                        overlay.put(space, &key, &[value]);
                        model.insert((space, key), vec![value]);
                    }
                    None => {
                        overlay.delete(space, &key);
                        model.remove(&(space, key));
                    }
                }
            }
            let reader = store.snapshot().expect("snapshot");
            let range = Range { start: bounds.0, end: bounds.1 };
            for space in 1..4 {
                let mut expected: Vec<(Vec<u8>, Vec<u8>)> = model
                    .iter()
                    .filter(|((other, key), _)| {
                        *other == space && *key >= range.start && range.end.as_ref().is_none_or(|end| key < end)
                    })
                    .map(|((_, key), value)| (key.clone(), value.clone()))
                    .collect();
                let mut lookup = overlay.lookup(reader.as_ref(), space).expect("a look-up");
                for (key, value) in &expected {
                    let found = overlay.get(reader.as_ref(), space, key).expect("get");
                    prop_assert_eq!(found.as_deref(), Some(value.as_slice()));
                    prop_assert_eq!(lookup.get(key).expect("get"), Some(value.as_slice()));
                }
                let mut forward = overlay.cursor(reader.as_ref(), space, &range, Direction::Forward).expect("a cursor");
                prop_assert_eq!(collect(forward.as_mut()), expected.clone());
                expected.reverse();
                let mut backward = overlay.cursor(reader.as_ref(), space, &range, Direction::Backward).expect("a cursor");
                prop_assert_eq!(collect(backward.as_mut()), expected);
            }
        }
    }
}
