//! Queries and their execution over a snapshot.

use std::{
    collections::{BinaryHeap, HashSet},
    time::Instant,
};

use bson::{Document, RawDocumentBuf, raw::RawDocument};

use crate::{
    catalog::Collection,
    error::{Error, Result},
    filter::Filter,
    index,
    plan::{Access, Plan, choose},
    projection::Projection,
    sort::Sort,
    store::Reader,
};

/// Most bytes that a sort without an index holds.
const SORT_BYTES_MAX: usize = 128 << 20;
/// Rows between two looks at the clock.
const CLOCK_INTERVAL: u64 = 128;

/// A query.
#[derive(Debug, Clone)]
pub struct Query {
    /// Documents to match.
    pub filter: Filter,
    /// Order.
    pub sort: Sort,
    /// Matches to leave out at the beginning.
    pub skip: usize,
    /// Most matches.
    pub limit: Option<usize>,
    /// Fields to return.
    pub projection: Option<Projection>,
    /// Time at which the query is given up.
    pub deadline: Option<Instant>,
}

impl Default for Query {
    fn default() -> Self {
        Self::new(Filter::And(Vec::new()))
    }
}

impl Query {
    /// Builds a query for everything that a filter matches.
    pub fn new(filter: Filter) -> Self {
        Self { filter, sort: Sort::default(), skip: 0, limit: None, projection: None, deadline: None }
    }

    /// Parses the parts of a query.
    pub fn parse(filter: &Document, sort: &Document, projection: &Document) -> Result<Self> {
        Ok(Self {
            sort: Sort::parse(sort)?,
            projection: Projection::parse(projection)?,
            ..Self::new(Filter::parse(filter)?)
        })
    }

    fn wanted(&self) -> Option<usize> {
        self.limit.map(|limit| limit.saturating_add(self.skip))
    }
}

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

/// Chooses a plan for a query.
pub(crate) fn plan(reader: &dyn Reader, collection: &Collection, query: &Query) -> Result<Plan> {
    choose(reader, collection, &query.filter, &query.sort, query.wanted())
}

/// Runs a query. `visit` gets the encoded `_id` and the whole document, and returns false to stop.
pub(crate) fn run(
    reader: &dyn Reader,
    collection: &Collection,
    query: &Query,
    visit: &mut dyn FnMut(&[u8], &RawDocument) -> Result<bool>,
) -> Result<Examined> {
    let plan = plan(reader, collection, query)?;
    run_plan(reader, collection, query, &plan, visit)
}

pub(crate) fn run_plan(
    reader: &dyn Reader,
    collection: &Collection,
    query: &Query,
    plan: &Plan,
    visit: &mut dyn FnMut(&[u8], &RawDocument) -> Result<bool>,
) -> Result<Examined> {
    let mut scan =
        Scan { reader, collection, examined: Examined::default(), deadline: query.deadline, rows: 0 };
    if query.limit == Some(0) {
        return Ok(scan.examined);
    }
    let (mut skipped, mut returned) = (0, 0_u64);
    let mut emit = |id: &[u8], document: &RawDocument| -> Result<bool> {
        if skipped < query.skip {
            skipped += 1;
            return Ok(true);
        }
        returned += 1;
        let more = visit(id, document)?;
        Ok(more && query.limit.is_none_or(|limit| returned < limit as u64))
    };
    if plan.sorted {
        scan.documents(&plan.access, &mut |id, document| {
            if !plan.exact && !query.filter.matches(document) {
                return Ok(true);
            }
            emit(id, document)
        })?;
    } else {
        let mut sorted = Sorted::new(query.wanted());
        scan.documents(&plan.access, &mut |id, document| {
            if plan.exact || query.filter.matches(document) {
                sorted.push(query.sort.key(document), id, document)?;
            }
            Ok(true)
        })?;
        for row in sorted.into_rows() {
            let document = stored(&row.document)?;
            if !emit(&row.id, document)? {
                break;
            }
        }
    }
    scan.examined.returned = returned;
    Ok(scan.examined)
}

/// Counts matches, without reading documents where the index suffices.
pub(crate) fn count(reader: &dyn Reader, collection: &Collection, query: &Query) -> Result<u64> {
    let within = |count: u64| {
        let count = count.saturating_sub(query.skip as u64);
        query.limit.map_or(count, |limit| count.min(limit as u64))
    };
    if query.filter.is_empty() {
        return Ok(within(crate::catalog::count(reader, collection)?));
    }
    let plan = plan(reader, collection, query)?;
    if plan.exact
        && let Access::Index { position, ranges, direction } = &plan.access
    {
        let index = &collection.indexes[*position];
        let mut count = 0;
        for range in ranges {
            let mut cursor = reader.cursor(index.space, range, *direction)?;
            while cursor.advance()? {
                count += 1;
            }
        }
        return Ok(within(count));
    }
    let unordered = Query { sort: Sort::default(), ..query.clone() };
    Ok(run_plan(reader, collection, &unordered, &Plan { sorted: true, ..plan }, &mut |_, _| Ok(true))?
        .returned)
}

/// Collects projected documents.
pub(crate) fn collect(
    reader: &dyn Reader,
    collection: &Collection,
    query: &Query,
) -> Result<Vec<RawDocumentBuf>> {
    let mut documents = Vec::new();
    run(reader, collection, query, &mut |_, document| {
        documents.push(match &query.projection {
            Some(projection) => projection.apply(document),
            None => document.to_owned(),
        });
        Ok(true)
    })?;
    Ok(documents)
}

/// Views stored bytes as a document.
pub(crate) fn stored(bytes: &[u8]) -> Result<&RawDocument> {
    RawDocument::from_bytes(bytes).map_err(Error::corrupt)
}

type Visit<'a> = &'a mut dyn FnMut(&[u8], &RawDocument) -> Result<bool>;

struct Scan<'a> {
    reader: &'a dyn Reader,
    collection: &'a Collection,
    examined: Examined,
    deadline: Option<Instant>,
    rows: u64,
}

impl Scan<'_> {
    fn tick(&mut self) -> Result<()> {
        self.rows += 1;
        if self.rows.is_multiple_of(CLOCK_INTERVAL)
            && self.deadline.is_some_and(|deadline| Instant::now() > deadline)
        {
            return Err(Error::TimedOut);
        }
        Ok(())
    }

    /// Visits the candidates of an access path, each once.
    fn documents(&mut self, access: &Access, visit: Visit<'_>) -> Result<()> {
        match access {
            Access::Union(parts) => {
                let mut seen = HashSet::new();
                let mut go_on = true;
                for part in parts {
                    if !go_on {
                        break;
                    }
                    self.one(part, Some(&mut seen), &mut |id, document| {
                        go_on = visit(id, document)?;
                        Ok(go_on)
                    })?;
                }
                Ok(())
            }
            Access::Index { position, .. } if self.collection.indexes[*position].multikey => {
                self.one(access, Some(&mut HashSet::new()), visit)
            }
            _ => self.one(access, None, visit),
        }
    }

    fn one(
        &mut self,
        access: &Access,
        mut seen: Option<&mut HashSet<Box<[u8]>>>,
        visit: Visit<'_>,
    ) -> Result<()> {
        let mut is_new = |id: &[u8]| seen.as_mut().is_none_or(|seen| seen.insert(id.into()));
        match access {
            Access::Nothing => Ok(()),
            Access::Documents { ranges, direction } => {
                for range in in_direction(ranges, *direction) {
                    let mut cursor = self.reader.cursor(self.collection.space, range, *direction)?;
                    while cursor.advance()? {
                        self.tick()?;
                        if !is_new(cursor.key()) {
                            continue;
                        }
                        self.examined.documents += 1;
                        if !visit(cursor.key(), stored(cursor.value())?)? {
                            return Ok(());
                        }
                    }
                }
                Ok(())
            }
            Access::Index { position, ranges, direction } => {
                let index = &self.collection.indexes[*position];
                for range in in_direction(ranges, *direction) {
                    let mut cursor = self.reader.cursor(index.space, range, *direction)?;
                    while cursor.advance()? {
                        self.tick()?;
                        self.examined.keys += 1;
                        let id = index::id_of(&index.spec, cursor.key())?;
                        if !is_new(id) {
                            continue;
                        }
                        self.examined.documents += 1;
                        let document = self.reader.get(self.collection.space, id)?.ok_or_else(|| {
                            Error::corrupt(format!("index {:?} names a missing document", index.spec.name))
                        })?;
                        if !visit(id, stored(&document)?)? {
                            return Ok(());
                        }
                    }
                }
                Ok(())
            }
            // Unions of unions are flattened when they are planned.
            Access::Union(parts) => {
                for part in parts {
                    self.one(part, seen.as_deref_mut(), visit)?;
                }
                Ok(())
            }
        }
    }
}

fn in_direction(
    ranges: &[crate::store::Range],
    direction: crate::store::Direction,
) -> Box<dyn Iterator<Item = &crate::store::Range> + '_> {
    match direction {
        crate::store::Direction::Forward => Box::new(ranges.iter()),
        crate::store::Direction::Backward => Box::new(ranges.iter().rev()),
    }
}

/// A document waiting to be returned in order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    key: Vec<u8>,
    /// Ties keep the order of arrival.
    sequence: usize,
    id: Box<[u8]>,
    document: Box<[u8]>,
}

/// Rows in order; only the first `wanted`, if that is known.
struct Sorted {
    wanted: Option<usize>,
    rows: BinaryHeap<Row>,
    sequence: usize,
    bytes: usize,
}

impl Sorted {
    fn new(wanted: Option<usize>) -> Self {
        Self { wanted, rows: BinaryHeap::new(), sequence: 0, bytes: 0 }
    }

    fn push(&mut self, key: Vec<u8>, id: &[u8], document: &RawDocument) -> Result<()> {
        self.sequence += 1;
        let full = self.wanted.is_some_and(|wanted| self.rows.len() >= wanted);
        if full && self.rows.peek().is_none_or(|last| key >= last.key) {
            return Ok(());
        }
        let row = Row { key, sequence: self.sequence, id: id.into(), document: document.as_bytes().into() };
        self.bytes += row.key.len() + row.document.len();
        self.rows.push(row);
        if full && let Some(dropped) = self.rows.pop() {
            self.bytes -= dropped.key.len() + dropped.document.len();
        }
        if self.bytes > SORT_BYTES_MAX {
            return Err(Error::TooLarge(format!(
                "sort exceeded its memory limit of {SORT_BYTES_MAX} bytes; add an index or a limit"
            )));
        }
        Ok(())
    }

    fn into_rows(self) -> Vec<Row> {
        self.rows.into_sorted_vec()
    }
}
