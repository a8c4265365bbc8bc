//! Uncommitted changes over a snapshot.

use std::{borrow::Cow, cmp::Ordering, ops::Bound, sync::Arc};

use imbl::{OrdMap, OrdSet};

use super::{Cursor, Direction, Range, Reader, Space, bytes::Bytes};
use crate::error::Result;

/// A change of a key: its new value, or nothing if it is deleted.
pub(super) type Change = Option<Arc<[u8]>>;

/// Changes not yet written. Clones are cheap, so a savepoint is a clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    pub(super) keys: OrdMap<(Space, Bytes), Change>,
    pub(super) dropped: OrdSet<Space>,
}

impl Changes {
    pub(super) fn get<'a>(
        &'a self,
        base: &'a dyn Reader,
        space: Space,
        key: &[u8],
    ) -> Result<Option<Cow<'a, [u8]>>> {
        if let Some(change) = self.keys.get(&(space, Bytes::new(key))) {
            return Ok(change.as_deref().map(Cow::Borrowed));
        }
        if self.dropped.contains(&space) {
            return Ok(None);
        }
        base.get(space, key)
    }

    pub(super) fn cursor<'a>(
        &'a self,
        base: &'a dyn Reader,
        space: Space,
        range: &Range,
        direction: Direction,
    ) -> Result<Box<dyn Cursor + 'a>> {
        let range = if self.dropped.contains(&space) || range.is_empty() {
            // Nothing of the base shows.
            Range { start: Vec::new(), end: Some(Vec::new()) }
        } else {
            range.clone()
        };
        let base = base.cursor(space, &range, direction)?;
        if range.is_empty() {
            return Ok(base);
        }
        let start = Bound::Included((space, Bytes::new(&range.start)));
        let end = match &range.end {
            Some(end) => Bound::Excluded((space, Bytes::new(end))),
            None => Bound::Excluded((space + 1, Bytes::new(&[]))),
        };
        let changes = self.keys.range((start, end)).map(|((_, key), change)| (key.as_slice(), change));
        let changes: Box<dyn Iterator<Item = _> + 'a> = match direction {
            Direction::Forward => Box::new(changes),
            Direction::Backward => Box::new(changes.rev()),
        };
        Ok(Box::new(Merged {
            base,
            changes,
            direction,
            next_base: None,
            next_change: None,
            started: false,
            source: Source::Base,
        }))
    }
}

enum Source {
    Base,
    Change,
}

/// A cursor over a base and the changes to it.
struct Merged<'a> {
    base: Box<dyn Cursor + 'a>,
    changes: Box<dyn Iterator<Item = (&'a [u8], &'a Change)> + 'a>,
    direction: Direction,
    /// True if the base stands on a key that has not been passed.
    next_base: Option<bool>,
    next_change: Option<(&'a [u8], &'a Change)>,
    started: bool,
    source: Source,
}

impl Merged<'_> {
    fn advance_base(&mut self) -> Result<()> {
        self.next_base = Some(self.base.advance()?);
        Ok(())
    }
}

impl Cursor for Merged<'_> {
    fn advance(&mut self) -> Result<bool> {
        if !self.started {
            self.started = true;
            self.advance_base()?;
            self.next_change = self.changes.next();
        } else {
            match self.source {
                Source::Base => self.advance_base()?,
                Source::Change => self.next_change = self.changes.next(),
            }
        }
        loop {
            let order = match (self.next_base == Some(true), self.next_change) {
                (false, None) => return Ok(false),
                (true, None) => Ordering::Less,
                (false, Some(_)) => Ordering::Greater,
                (true, Some((key, _))) => match self.direction {
                    Direction::Forward => self.base.key().cmp(key),
                    Direction::Backward => key.cmp(self.base.key()),
                },
            };
            match order {
                Ordering::Less => {
                    self.source = Source::Base;
                    return Ok(true);
                }
                // The change supersedes the base's entry.
                Ordering::Equal => self.advance_base()?,
                Ordering::Greater => match self.next_change {
                    Some((_, None)) => self.next_change = self.changes.next(),
                    _ => {
                        self.source = Source::Change;
                        return Ok(true);
                    }
                },
            }
        }
    }

    fn key(&self) -> &[u8] {
        match (&self.source, self.next_change) {
            (Source::Change, Some((key, _))) => key,
            _ => self.base.key(),
        }
    }

    fn value(&self) -> &[u8] {
        match (&self.source, self.next_change) {
            (Source::Change, Some((_, change))) => change.as_deref().unwrap_or_default(),
            _ => self.base.value(),
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
            dropped in proptest::option::of(1_u32..4),
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
            if let Some(dropped) = dropped {
                overlay.dropped.insert(dropped);
                model.retain(|(space, _), _| *space != dropped);
            }
            for (space, key, value) in changes.into_iter().filter(|(space, ..)| Some(*space) != dropped) {
                overlay.keys.insert((space, Bytes::new(&key)), value.map(|value| Arc::from([value])));
                match value {
                    Some(value) => model.insert((space, key), vec![value]),
                    None => model.remove(&(space, key)),
                };
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
                for (key, value) in &expected {
                    let found = overlay.get(reader.as_ref(), space, key).expect("get");
                    prop_assert_eq!(found.as_deref(), Some(value.as_slice()));
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
