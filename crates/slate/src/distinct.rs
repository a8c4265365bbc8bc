//! Distinct values: by a skip scan of an index, or from every document.

use std::collections::{BTreeMap, btree_map::Entry};

use bson::{Bson, raw::RawBsonRef};

use crate::{
    catalog::{Collection, Index},
    deadline::Deadline,
    engine::Engine,
    error::{Error, Result},
    index, key,
    path::Path,
    plan::Access,
    query::{self, Query},
    scan::view_document,
    store::{Direction, Range, Reader},
};

/// Largest result in bytes.
const RESULT_BYTES_MAX: usize = 16 << 20;

/// Values by their encoding.
#[derive(Default)]
struct Values {
    values: BTreeMap<Vec<u8>, Bson>,
    bytes: usize,
}

impl Values {
    fn add(&mut self, value: RawBsonRef<'_>) -> Result<()> {
        if let Entry::Vacant(slot) = self.values.entry(key::encode(value)) {
            self.bytes += slot.key().len();
            if self.bytes > RESULT_BYTES_MAX {
                return Err(Error::TooLarge(format!(
                    "distinct values take more than {RESULT_BYTES_MAX} bytes"
                )));
            }
            slot.insert(Bson::try_from(value).map_err(Error::corrupt)?);
        }
        Ok(())
    }

    /// Adds what a path reaches in a document. Returns true if that was anything.
    fn add_from(&mut self, document: &bson::raw::RawDocument, path: &Path) -> Result<bool> {
        let (mut added, mut found) = (Ok(()), false);
        path.visit(document, &mut |value| {
            added = match value {
                None => return false,
                Some(RawBsonRef::Array(array)) => {
                    array.into_iter().flatten().try_for_each(|value| self.add(value))
                }
                Some(value) => self.add(value),
            };
            found = true;
            added.is_err()
        });
        added.map(|()| found)
    }
}

impl Engine {
    /// Returns the distinct values of a path among the documents of a query, in order.
    pub fn distinct(&self, collection: &str, path: &Path, query: &Query) -> Result<Vec<Bson>> {
        let (catalog, reader) = self.committer.snapshot()?;
        let collection = catalog.get(collection)?;
        let reader = reader.as_ref();
        let mut values = Values::default();
        match index_with(reader, collection, path, query)? {
            Some((index, ranges)) => {
                let deadline = Deadline::new(query.deadline);
                skip_scan(reader, collection, index, &ranges, path, deadline, &mut values)?;
            }
            None => {
                query::run(reader, collection, query, &mut |_, document| {
                    values.add_from(document, path).map(|_| true)
                })?;
            }
        }
        Ok(values.values.into_values().collect())
    }
}

/// Returns an index that begins with the path and whose ranges are exactly the query.
fn index_with<'a>(
    reader: &dyn Reader,
    collection: &'a Collection,
    path: &Path,
    query: &Query,
) -> Result<Option<(&'a Index, Vec<Range>)>> {
    let begins = |index: &Index| {
        // One entry per document and value, or the skip scan could miss a value.
        index.is_ready()
            && !index.multikey
            && index.spec.fields.first().is_some_and(|field| field.path == *path)
    };
    if query.skip > 0 || query.limit.is_some() {
        return Ok(None);
    }
    if query.filter.is_empty() {
        let index = collection.indexes.iter().find(|index| begins(index) && !index.spec.sparse);
        return Ok(index.map(|index| (index, vec![Range::all()])));
    }
    let plan = query::plan(reader, collection, query)?;
    Ok(match plan.access {
        Access::Index { position, ranges, .. } if plan.exact => {
            Some(&collection.indexes[position]).filter(|index| begins(index)).map(|index| (index, ranges))
        }
        _ => None,
    })
}

/// Reads one document for each value of an index's first field. The document has the value's exact type, which
/// a key does not keep.
fn skip_scan(
    reader: &dyn Reader,
    collection: &Collection,
    index: &Index,
    ranges: &[Range],
    path: &Path,
    mut deadline: Deadline,
    values: &mut Values,
) -> Result<()> {
    let descending = index.spec.fields.first().is_some_and(|field| field.descending);
    let mut documents = reader.lookup(collection.space)?;
    for range in ranges {
        let mut cursor = reader.cursor(index.space, range, Direction::Forward)?;
        let mut more = cursor.advance()?;
        while more {
            deadline.tick(1)?;
            let entry = cursor.key();
            let id = index::id_of(&index.spec, entry)?;
            let document = documents.get(id)?;
            let document = document.ok_or_else(|| Error::corrupt("an index names a missing document"))?;
            let found = values.add_from(view_document(document)?, path)?;
            let value_len = entry.len() - key::skip(entry, descending)?.len();
            let next = key::prefix_successor(&entry[..value_len]).filter(|_| found);
            more = match next {
                Some(next) => cursor.seek(&next)?,
                // A missing field and null have one key: some other document may have null.
                None => cursor.advance()?,
            };
        }
    }
    Ok(())
}
