//! Updates, replacements, deletions and upserts within a transaction.

use std::sync::Arc;

use bson::{Bson, Document, RawDocumentBuf, raw::RawDocument};

use crate::{
    catalog::Collection,
    deadline::Deadline,
    document,
    engine::raw,
    error::{Error, Result},
    filter::{Filter, Predicate},
    query::{self, Query},
    scan::view_document,
    transaction::{Transaction, id_of},
    update::Update,
};

/// Result of an update.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Updated {
    /// Documents that matched.
    pub matched: u64,
    /// Documents that changed.
    pub modified: u64,
    /// `_id` of the document that an upsert inserted.
    pub upserted: Option<Bson>,
}

/// Result of an insertion of many documents.
#[derive(Debug, Clone, Default)]
pub struct Inserted {
    /// `_id`s of the inserted documents.
    pub ids: Vec<Bson>,
    /// Documents that were not inserted: position and reason.
    pub failures: Vec<(usize, Error)>,
}

/// A document found and changed.
#[derive(Debug, Clone, Default)]
pub struct Modified {
    /// The document before.
    pub before: Option<RawDocumentBuf>,
    /// The document after.
    pub after: Option<RawDocumentBuf>,
    /// `_id` of the document that an upsert inserted.
    pub upserted: Option<Bson>,
}

/// Matched documents, with their encoded `_id`.
type Matches = Vec<(Vec<u8>, RawDocumentBuf)>;

impl Transaction<'_> {
    /// Returns the documents of a query as this transaction sees them.
    pub fn find(&self, collection: &str, query: &Query) -> Result<Vec<RawDocumentBuf>> {
        query::collect(self.reader(), self.catalog().get(collection)?, query)
    }

    fn matches(&self, collection: &Collection, query: &Query) -> Result<Matches> {
        let mut matches = Vec::new();
        query::run(self.reader(), collection, query, &mut |id, document| {
            matches.push((id.to_vec(), document.to_owned()));
            Ok(true)
        })?;
        Ok(matches)
    }

    /// Updates the documents of a query: all of them, or as many as its limit says.
    pub fn update(&mut self, name: &str, query: &Query, update: &Update, upsert: bool) -> Result<Updated> {
        if update.is_replacement() && query.limit != Some(1) {
            return Err(Error::invalid("a replacement is for one document; use operators to update many"));
        }
        let collection = self.collection(name)?;
        let matches = self.matches(&collection, query)?;
        if matches.is_empty() && upsert {
            let (id, _) = self.upsert(&collection, &query.filter, update)?;
            return Ok(Updated { upserted: Some(id), ..Updated::default() });
        }
        let mut updated = Updated { matched: matches.len() as u64, ..Updated::default() };
        let mut deadline = Deadline::new(query.deadline);
        for (id, before) in matches {
            deadline.tick(1)?;
            if self.change(&collection, &id, &before, update)?.is_some() {
                updated.modified += 1;
            }
        }
        Ok(updated)
    }

    /// Changes one document. Returns the new one, or nothing if it stayed the same.
    fn change(
        &mut self,
        collection: &Arc<Collection>,
        id: &[u8],
        before: &RawDocument,
        update: &Update,
    ) -> Result<Option<RawDocumentBuf>> {
        let mut changed = Document::try_from(before).map_err(Error::corrupt)?;
        update.apply(&mut changed, false)?;
        let after = raw(&changed)?;
        if after.as_bytes() == before.as_bytes() {
            return Ok(None);
        }
        document::validate(&after)?;
        // An update may have made an index multikey meanwhile; the catalog has the present state.
        let collection = self.collection(&collection.name)?;
        self.write_document(&collection, id, Some(before), Some(&after))?;
        Ok(Some(after))
    }

    fn upsert(
        &mut self,
        collection: &Arc<Collection>,
        filter: &Filter,
        update: &Update,
    ) -> Result<(Bson, RawDocumentBuf)> {
        let mut seed = Document::new();
        if update.is_replacement() {
            // Only `_id` carries over; the rest is the replacement's.
            let mut equal = Document::new();
            equalities(filter, &mut equal);
            if let Some(id) = equal.remove("_id") {
                seed.insert("_id", id);
            }
        } else {
            equalities(filter, &mut seed);
        }
        update.apply(&mut seed, true)?;
        let seed = raw(&seed)?;
        let (document, id) = document::normalize(&seed)?;
        self.insert_normalized(collection, &id, &document)?;
        Ok((id_of(&document)?, document.into_owned()))
    }

    /// Deletes the documents of a query and returns their number.
    pub fn delete(&mut self, name: &str, query: &Query) -> Result<u64> {
        let collection = self.collection(name)?;
        let matches = self.matches(&collection, query)?;
        let mut deadline = Deadline::new(query.deadline);
        for (id, before) in &matches {
            deadline.tick(1)?;
            self.write_document(&collection, id, Some(before), None)?;
        }
        Ok(matches.len() as u64)
    }

    /// Updates or deletes (no update) the first document of a query.
    pub fn find_and_modify(
        &mut self,
        name: &str,
        query: &Query,
        update: Option<&Update>,
        upsert: bool,
    ) -> Result<Modified> {
        let collection = self.collection(name)?;
        let query = Query { limit: Some(1), ..query.clone() };
        let found = self.matches(&collection, &query)?.into_iter().next();
        match (found, update) {
            (Some((id, before)), Some(update)) => {
                let after = self.change(&collection, &id, &before, update)?;
                Ok(Modified {
                    after: Some(after.unwrap_or_else(|| before.clone())),
                    before: Some(before),
                    upserted: None,
                })
            }
            (Some((id, before)), None) => {
                self.write_document(&collection, &id, Some(&before), None)?;
                Ok(Modified { before: Some(before), ..Modified::default() })
            }
            (None, Some(update)) if upsert => {
                let (id, after) = self.upsert(&collection, &query.filter, update)?;
                Ok(Modified { before: None, after: Some(after), upserted: Some(id) })
            }
            (None, _) => Ok(Modified::default()),
        }
    }

    /// Inserts documents, or writes over those with the same `_id`. `merge` keeps fields that the new
    /// document lacks. Returns how many were inserted and how many changed.
    pub fn upsert_many(
        &mut self,
        name: &str,
        documents: &[RawDocumentBuf],
        merge: bool,
    ) -> Result<(u64, u64)> {
        let (mut inserted, mut modified) = (0, 0);
        for document in documents {
            let collection = self.collection(name)?;
            let (document, id) = document::normalize(document)?;
            let before = self.reader().get(collection.space, &id)?;
            let before = before.map(|bytes| view_document(&bytes).map(ToOwned::to_owned)).transpose()?;
            match before {
                None => {
                    self.write_document(&collection, &id, None, Some(&document))?;
                    inserted += 1;
                }
                Some(before) => {
                    let fields = Document::try_from(&*document).map_err(Error::corrupt)?;
                    let update = if merge { Update::Merge(fields) } else { Update::Replace(fields) };
                    if self.change(&collection, &id, &before, &update)?.is_some() {
                        modified += 1;
                    }
                }
            }
        }
        Ok((inserted, modified))
    }

    /// Inserts documents. `ordered` stops at the first failure, which is returned with its position; the
    /// documents before it stay inserted.
    pub fn insert_many(
        &mut self,
        name: &str,
        documents: &[RawDocumentBuf],
        ordered: bool,
    ) -> Result<Inserted> {
        let mut collection = self.collection(name)?;
        let (mut ids, mut failures) = (Vec::with_capacity(documents.len()), Vec::new());
        for (position, document) in documents.iter().enumerate() {
            let result = document::normalize(document).and_then(|(document, id)| {
                self.insert_normalized(&collection, &id, &document)?;
                id_of(&document)
            });
            match result {
                Ok(id) => ids.push(id),
                Err(error) => {
                    failures.push((position, error));
                    if ordered {
                        break;
                    }
                }
            }
            collection = self.collection(name)?;
        }
        Ok(Inserted { ids, failures })
    }
}

/// Collects the equalities of a filter, which an upsert starts from.
fn equalities(filter: &Filter, document: &mut Document) {
    match filter {
        Filter::And(parts) => parts.iter().for_each(|part| equalities(part, document)),
        Filter::Field(path, Predicate::Equal(value)) => {
            let Ok(value) = Bson::try_from(value.clone()) else { return };
            let Ok(update) = Update::parse(&bson::doc! { "$set": { path.to_string(): value } }) else {
                return;
            };
            // A path that cannot be set, such as one into a scalar, seeds nothing.
            let mut seeded = document.clone();
            if update.apply(&mut seeded, true).is_ok() {
                *document = seeded;
            }
        }
        _ => {}
    }
}
