//! Queries and their execution over a snapshot.

use std::time::Instant;

use bson::{Document, RawDocumentBuf, raw::RawDocument};

use crate::{
    catalog::Collection,
    error::Result,
    filter::Filter,
    plan::{Plan, choose},
    projection::Projection,
    scan::{Examined, Scan, view_document},
    sort::Sort,
    sorted::Sorted,
    store::Reader,
};

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

    fn rows_max(&self) -> Option<usize> {
        self.limit.map(|limit| limit.saturating_add(self.skip))
    }
}

/// Chooses a plan for a query.
pub(crate) fn plan(reader: &dyn Reader, collection: &Collection, query: &Query) -> Result<Plan> {
    choose(reader, collection, &query.filter, &query.sort, query.rows_max())
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
    let mut scan = Scan::new(reader, collection, query.deadline);
    if query.limit == Some(0) {
        return Ok(scan.examined());
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
    let filter = plan.residual.as_ref().unwrap_or(&query.filter);
    if plan.sorted {
        let rows_max = query.rows_max().filter(|_| plan.exact);
        scan.documents(&plan.access, rows_max, &mut |id, document| {
            if !plan.exact && !filter.matches(document) {
                return Ok(true);
            }
            emit(id, document)
        })?;
    } else {
        let mut sorted = Sorted::new(query.rows_max());
        scan.documents(&plan.access, None, &mut |id, document| {
            if plan.exact || filter.matches(document) {
                sorted.push(query.sort.key(document), id, document)?;
            }
            Ok(true)
        })?;
        for row in sorted.into_rows() {
            let document = view_document(&row.document)?;
            if !emit(&row.id, document)? {
                break;
            }
        }
    }
    Ok(Examined { returned, ..scan.examined() })
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
    if plan.exact {
        let mut count = 0;
        Scan::new(reader, collection, query.deadline).ids(&plan.access, &mut |_| {
            count += 1;
            Ok(true)
        })?;
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
