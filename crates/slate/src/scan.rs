//! Scans: the candidate documents of an access path.

use std::{collections::HashSet, time::Instant};

use bson::raw::RawDocument;

use crate::{
    catalog::{Collection, Index},
    deadline::Deadline,
    error::{Error, Result},
    index,
    plan::{Access, IntersectionInput},
    store::{Cursor, Direction, Keys, Lookup, Range, Reader, VisitFound},
};

/// `_id`s of the first batch of documents.
const BATCH_MIN: usize = 2;
/// Entries passed one by one on the way to an `_id`, before the rest is skipped.
const STEPS_MAX: usize = 4;

/// Work done by a query.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Examined {
    /// Index entries read.
    pub keys: u64,
    /// Documents read.
    pub documents: u64,
    /// Documents returned.
    pub returned: u64,
}

/// Views stored bytes as a document.
#[inline]
pub(crate) fn view_document(bytes: &[u8]) -> Result<&RawDocument> {
    RawDocument::from_bytes(bytes).map_err(Error::corrupt)
}

/// Views the bytes of a document that an index names.
#[inline]
fn require_document(document: Option<&[u8]>) -> Result<&RawDocument> {
    view_document(document.ok_or_else(|| Error::corrupt("an index names a missing document"))?)
}

type VisitDocument<'a> = &'a mut dyn FnMut(&[u8], &RawDocument) -> Result<bool>;
type VisitId<'a> = &'a mut dyn FnMut(&[u8]) -> Result<bool>;

/// A scan of one collection.
pub(crate) struct Scan<'a> {
    reader: &'a dyn Reader,
    collection: &'a Collection,
    deadline: Deadline,
    keys: u64,
    documents: u64,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(reader: &'a dyn Reader, collection: &'a Collection, deadline: Option<Instant>) -> Self {
        Self { reader, collection, deadline: Deadline::new(deadline), keys: 0, documents: 0 }
    }

    /// Returns the work done so far.
    pub(crate) fn examined(&self) -> Examined {
        Examined { keys: self.keys, documents: self.documents, returned: 0 }
    }

    /// Visits the candidates of an access path, each once, until `visit` returns false. `rows_max` is the number
    /// of rows after which it will, if there is a limit.
    pub(crate) fn documents(
        &mut self,
        access: &Access,
        rows_max: Option<usize>,
        visit: VisitDocument<'_>,
    ) -> Result<()> {
        if let Access::Documents { ranges, direction } = access {
            return self.in_id_order(ranges, *direction, visit);
        }
        if let Access::Index { position, ranges, direction } = access
            && let index = &self.collection.indexes[*position]
            && !index.multikey
            && self.join(index, ranges, *direction, rows_max, visit)?
        {
            return Ok(());
        }
        let mut lookup = self.reader.lookup(self.collection.space)?;
        let mut batch = Batch { ids: Keys::default(), size: BATCH_MIN, read: 0 };
        let scanned = self.ids(access, &mut |id| {
            batch.ids.push(id);
            let complete = rows_max.is_some_and(|rows_max| batch.read as usize + batch.ids.len() >= rows_max);
            if batch.ids.len() < batch.size && !complete {
                return Ok(true);
            }
            batch.fetch(lookup.as_mut(), visit)
        });
        // The rest, unless `visit` has stopped.
        let scanned = scanned.and_then(|()| match batch.ids.is_empty() {
            true => Ok(()),
            false => batch.fetch(lookup.as_mut(), visit).map(drop),
        });
        self.documents += batch.read;
        scanned
    }

    /// Visits the documents of an index's entries by a join. Returns false if index or documents are not in memory.
    fn join(
        &mut self,
        index: &Index,
        ranges: &[Range],
        direction: Direction,
        rows_max: Option<usize>,
        visit: VisitDocument<'_>,
    ) -> Result<bool> {
        let mut size = BATCH_MIN;
        for range in in_direction(ranges, direction) {
            let join = self.reader.join(index.space, range, direction, self.collection.space);
            // A space does not move while it is read, so there is none for the first range, or one for all.
            let Some(mut join) = join else { return Ok(false) };
            loop {
                let left = rows_max.map_or(size, |rows_max| rows_max.saturating_sub(self.documents as usize));
                let count = size.min(left.max(1));
                let read = &mut self.documents;
                let visit_found: VisitFound<'_> = &mut |id, document| {
                    *read += 1;
                    visit(id, require_document(document)?)
                };
                let joined = join.next(count, &|entry| index::id_of(&index.spec, entry), visit_found)?;
                self.keys += joined.entries as u64;
                self.deadline.tick(joined.entries as u64)?;
                if !joined.more {
                    return Ok(true);
                }
                if joined.entries < count {
                    break;
                }
                size = (size * 2).min(Keys::MAX);
            }
        }
        Ok(true)
    }

    fn in_id_order(
        &mut self,
        ranges: &[Range],
        direction: Direction,
        visit: VisitDocument<'_>,
    ) -> Result<()> {
        for range in in_direction(ranges, direction) {
            let mut cursor = self.reader.cursor(self.collection.space, range, direction)?;
            while cursor.advance()? {
                self.deadline.tick(1)?;
                self.documents += 1;
                if !visit(cursor.key(), view_document(cursor.value())?)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Visits the encoded `_id`s of an access path, each once, until `visit` returns false.
    pub(crate) fn ids(&mut self, access: &Access, visit: VisitId<'_>) -> Result<()> {
        let repeats = match access {
            Access::Union(_) => true,
            Access::Index { position, .. } => self.collection.indexes[*position].multikey,
            _ => false,
        };
        if !repeats {
            return self.all_ids(access, visit).map(drop);
        }
        let mut seen: HashSet<Box<[u8]>> = HashSet::new();
        self.all_ids(access, &mut |id| if seen.insert(id.into()) { visit(id) } else { Ok(true) }).map(drop)
    }

    /// Visits `_id`s, some of them repeatedly. Returns false if `visit` did.
    fn all_ids(&mut self, access: &Access, visit: VisitId<'_>) -> Result<bool> {
        match access {
            Access::Nothing => Ok(true),
            Access::Documents { ranges, direction } => {
                let mut go_on = true;
                self.in_id_order(ranges, *direction, &mut |id, _| {
                    go_on = visit(id)?;
                    Ok(go_on)
                })?;
                Ok(go_on)
            }
            Access::Index { position, ranges, direction } => {
                let index = &self.collection.indexes[*position];
                for range in in_direction(ranges, *direction) {
                    let mut cursor = self.reader.cursor(index.space, range, *direction)?;
                    while cursor.advance()? {
                        self.deadline.tick(1)?;
                        self.keys += 1;
                        if !visit(index::id_of(&index.spec, cursor.key())?)? {
                            return Ok(false);
                        }
                    }
                }
                Ok(true)
            }
            Access::Intersection(inputs) => self.intersect(inputs, visit),
            Access::Union(parts) => {
                for part in parts {
                    if !self.all_ids(part, visit)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }

    /// Visits the `_id`s that all inputs have. Each input is in the order of `_id`, so the one behind seeks to
    /// the one ahead.
    fn intersect(&mut self, inputs: &[IntersectionInput], visit: VisitId<'_>) -> Result<bool> {
        let mut cursors = inputs
            .iter()
            .map(|input| {
                let space = self.collection.indexes[input.position].space;
                let cursor = self.reader.cursor(space, &Range::prefix(&input.prefix), Direction::Forward)?;
                Ok(InputCursor { cursor, prefix: &input.prefix, target: Vec::new(), steps: 0 })
            })
            .collect::<Result<Vec<_>>>()?;
        let mut candidate: Vec<u8> = Vec::new();
        let (mut next, mut agreed) = (0, 0);
        loop {
            self.deadline.tick(1)?;
            let cursor = &mut cursors[next];
            let found = cursor.advance_to(&candidate)?;
            self.keys += std::mem::take(&mut cursor.steps);
            if !found {
                return Ok(true);
            }
            if cursor.id() == candidate.as_slice() {
                agreed += 1;
            } else {
                candidate.clear();
                candidate.extend_from_slice(cursor.id());
                agreed = 1;
            }
            if agreed == inputs.len() {
                if !visit(&candidate)? {
                    return Ok(false);
                }
                // The least `_id` above this one.
                candidate.push(0);
                agreed = 0;
            }
            next = (next + 1) % inputs.len();
        }
    }
}

/// `_id`s whose documents are looked up together.
struct Batch {
    ids: Keys,
    /// Length of a full batch. It grows, so that a small limit is not overshot by much.
    size: usize,
    /// Documents read.
    read: u64,
}

impl Batch {
    /// Visits the documents, and empties the batch. Returns false if `visit` did.
    fn fetch(&mut self, lookup: &mut dyn Lookup, visit: VisitDocument<'_>) -> Result<bool> {
        let Self { ids, read, .. } = self;
        let more = lookup.get_all(ids, &mut |id, document| {
            *read += 1;
            visit(id, require_document(document)?)
        });
        self.ids.clear();
        self.size = (self.size * 2).min(Keys::MAX);
        more
    }
}

/// Cursor over one input of an intersection.
struct InputCursor<'a> {
    cursor: Box<dyn Cursor + 'a>,
    prefix: &'a [u8],
    /// Buffer for the entry to seek.
    target: Vec<u8>,
    /// Entries read.
    steps: u64,
}

impl InputCursor<'_> {
    fn id(&self) -> &[u8] {
        self.cursor.key().get(self.prefix.len()..).unwrap_or_default()
    }

    /// Moves to the first `_id` at or after this one. Returns false at the end.
    fn advance_to(&mut self, id: &[u8]) -> Result<bool> {
        if !self.cursor.key().is_empty() && self.id() >= id {
            return Ok(true);
        }
        for _ in 0..STEPS_MAX {
            self.steps += 1;
            if !self.cursor.advance()? {
                return Ok(false);
            }
            if self.id() >= id {
                return Ok(true);
            }
        }
        self.steps += 1;
        self.target.clear();
        self.target.extend_from_slice(self.prefix);
        self.target.extend_from_slice(id);
        self.cursor.seek(&self.target)
    }
}

fn in_direction(ranges: &[Range], direction: Direction) -> Box<dyn Iterator<Item = &Range> + '_> {
    match direction {
        Direction::Forward => Box::new(ranges.iter()),
        Direction::Backward => Box::new(ranges.iter().rev()),
    }
}
