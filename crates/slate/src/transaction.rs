//! A write transaction over documents: keeps indexes, counts and the catalog in step.

use std::sync::Arc;

use bson::raw::RawDocument;
use imbl::OrdMap;

use crate::{
    catalog::{Build, Catalog, Collection, Index, IndexSpec},
    document,
    error::{Error, Result},
    index::{self, Entries},
    store::{Direction, Range, Reader, Space, Writer},
};

/// A transaction. Everything it does becomes visible and durable at once, or not at all.
#[allow(missing_debug_implementations, reason = "a store's writer has nothing to show")]
pub struct Transaction<'a> {
    writer: Box<dyn Writer + 'a>,
    catalog: Arc<Catalog>,
    counts: OrdMap<Space, i64>,
    changed_bytes: usize,
    savepoint: (Arc<Catalog>, OrdMap<Space, i64>),
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(writer: Box<dyn Writer + 'a>, catalog: Arc<Catalog>) -> Self {
        let savepoint = (Arc::clone(&catalog), OrdMap::new());
        Self { writer, catalog, counts: OrdMap::new(), changed_bytes: 0, savepoint }
    }

    pub(crate) fn savepoint(&mut self) {
        self.writer.savepoint();
        self.savepoint = (Arc::clone(&self.catalog), self.counts.clone());
    }

    pub(crate) fn roll_back(&mut self) {
        self.writer.roll_back();
        (self.catalog, self.counts) = (Arc::clone(&self.savepoint.0), self.savepoint.1.clone());
    }

    pub(crate) fn changed_bytes(&self) -> usize {
        self.changed_bytes
    }

    pub(crate) fn into_parts(self) -> (Box<dyn Writer + 'a>, Arc<Catalog>, OrdMap<Space, i64>) {
        (self.writer, self.catalog, self.counts)
    }

    /// Returns the transaction's view of the store.
    pub(crate) fn reader(&self) -> &dyn Reader {
        self.writer.as_reader()
    }

    /// Returns the transaction's catalog.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// Returns a collection.
    pub fn collection(&self, name: &str) -> Result<Arc<Collection>> {
        self.catalog.get(name).cloned()
    }

    /// Creates a collection.
    pub fn create_collection(&mut self, name: &str) -> Result<()> {
        Arc::make_mut(&mut self.catalog).create(self.writer.as_mut(), name)
    }

    /// Drops a collection with its indexes.
    pub fn drop_collection(&mut self, name: &str) -> Result<()> {
        let space = self.catalog.get(name)?.space;
        self.counts.remove(&space);
        Arc::make_mut(&mut self.catalog).drop(self.writer.as_mut(), name)
    }

    /// Creates an index. It is ready at once if the collection is empty; otherwise the engine builds it.
    /// Returns false if it exists already.
    pub fn create_index(&mut self, name: &str, spec: IndexSpec) -> Result<bool> {
        spec.validate()?;
        let mut collection = Collection::clone(self.catalog.get(name)?);
        if collection.check_new_index(&spec)? {
            return Ok(false);
        }
        let mut cursor = self.writer.cursor(collection.space, &Range::all(), Direction::Forward)?;
        let empty = !cursor.advance()?;
        drop(cursor);
        let build = if empty { Build::Ready } else { Build::Building { next: Vec::new(), indexed: 0 } };
        let catalog = Arc::make_mut(&mut self.catalog);
        let space = catalog.allocate_space(self.writer.as_mut())?;
        collection.indexes.push(Index { spec, space, multikey: false, build });
        catalog.put(self.writer.as_mut(), collection)?;
        Ok(true)
    }

    /// Drops an index by name.
    pub fn drop_index(&mut self, name: &str, index: &str) -> Result<()> {
        let mut collection = Collection::clone(self.catalog.get(name)?);
        let position = collection.index(index).ok_or_else(|| Error::NoIndex(index.to_owned()))?;
        let dropped = collection.indexes.remove(position);
        self.writer.drop_space(dropped.space);
        Arc::make_mut(&mut self.catalog).put(self.writer.as_mut(), collection)
    }

    /// Records the state of an index's build.
    pub(crate) fn set_build(&mut self, name: &str, index: &str, build: Build, multikey: bool) -> Result<()> {
        let mut collection = Collection::clone(self.catalog.get(name)?);
        let position = collection.index(index).ok_or_else(|| Error::NoIndex(index.to_owned()))?;
        collection.indexes[position].build = build;
        collection.indexes[position].multikey |= multikey;
        Arc::make_mut(&mut self.catalog).put(self.writer.as_mut(), collection)
    }

    /// Inserts a normalized document.
    pub(crate) fn insert_normalized(
        &mut self,
        collection: &Arc<Collection>,
        id: &[u8],
        document: &RawDocument,
    ) -> Result<()> {
        if self.writer.get(collection.space, id)?.is_some() {
            return Err(duplicate_id(id));
        }
        self.write_document(collection, id, None, Some(document))
    }

    /// Inserts a document and returns its encoded `_id`.
    pub fn insert(&mut self, collection: &str, document: &RawDocument) -> Result<bson::Bson> {
        let collection = self.collection(collection)?;
        let (document, id) = document::normalize(document)?;
        self.insert_normalized(&collection, &id, &document)?;
        id_of(&document)
    }

    /// Replaces the document with an `_id`: nothing before is an insert, nothing after a deletion.
    ///
    /// Checks everything before it changes anything, so a failure leaves no trace.
    pub(crate) fn write_document(
        &mut self,
        collection: &Arc<Collection>,
        id: &[u8],
        old: Option<&RawDocument>,
        new: Option<&RawDocument>,
    ) -> Result<()> {
        let mut differences = Vec::with_capacity(collection.indexes.len());
        for index in &collection.indexes {
            let old = old.map(|old| index::entries(&index.spec, old)).transpose()?.unwrap_or_default();
            let new = new.map(|new| index::entries(&index.spec, new)).transpose()?.unwrap_or_default();
            if index.spec.unique {
                for key in new.keys.iter().filter(|key| !old.keys.contains(key)) {
                    self.check_unique(index, key, id)?;
                }
            }
            differences.push((old, new));
        }
        let mut becomes_multikey = false;
        for (index, (old, new)) in collection.indexes.iter().zip(&differences) {
            becomes_multikey |= new.multikey && !index.multikey;
            self.write_entries(index, id, old, new);
        }
        match new {
            Some(new) => {
                self.changed_bytes += new.as_bytes().len();
                self.writer.put(collection.space, id, new.as_bytes());
            }
            None => self.writer.delete(collection.space, id),
        }
        let change = i64::from(new.is_some()) - i64::from(old.is_some());
        if change != 0 {
            *self.counts.entry(collection.space).or_insert(0) += change;
        }
        if becomes_multikey {
            let mut collection = Collection::clone(self.catalog.get(&collection.name)?);
            for (index, (_, new)) in collection.indexes.iter_mut().zip(&differences) {
                index.multikey |= new.multikey;
            }
            Arc::make_mut(&mut self.catalog).put(self.writer.as_mut(), collection)?;
        }
        Ok(())
    }

    /// Adds the entries of a document to an index that is being built.
    pub(crate) fn backfill(&mut self, index: &Index, id: &[u8], document: &RawDocument) -> Result<bool> {
        let new = index::entries(&index.spec, document)?;
        if index.spec.unique {
            for key in &new.keys {
                self.check_unique(index, key, id)?;
            }
        }
        self.write_entries(index, id, &Entries::default(), &new);
        Ok(new.multikey)
    }

    /// Writes the difference between a document's old and new entries.
    fn write_entries(&mut self, index: &Index, id: &[u8], old: &Entries, new: &Entries) {
        let mut full = Vec::with_capacity(64);
        for key in old.keys.iter().filter(|key| !new.keys.contains(key)) {
            set_entry(&mut full, key, id);
            self.writer.delete(index.space, &full);
        }
        for key in new.keys.iter().filter(|key| !old.keys.contains(key)) {
            set_entry(&mut full, key, id);
            self.changed_bytes += full.len();
            self.writer.put(index.space, &full, &[]);
        }
    }

    fn check_unique(&self, index: &Index, key: &[u8], id: &[u8]) -> Result<()> {
        let mut cursor = self.writer.cursor(index.space, &Range::prefix(key), Direction::Forward)?;
        while cursor.advance()? {
            if cursor.key().get(key.len()..) != Some(id) {
                return Err(Error::DuplicateKey {
                    index: index.spec.name.clone(),
                    key: index::describe(&index.spec, key),
                });
            }
        }
        Ok(())
    }
}

fn set_entry(full: &mut Vec<u8>, key: &[u8], id: &[u8]) {
    full.clear();
    full.extend_from_slice(key);
    full.extend_from_slice(id);
}

fn duplicate_id(id: &[u8]) -> Error {
    let key = crate::key::decode(id).map_or_else(|_| "?".to_owned(), |(id, _)| id.to_string());
    Error::DuplicateKey { index: crate::catalog::ID_INDEX.to_owned(), key: format!("{{ _id: {key} }}") }
}

/// Returns a normalized document's `_id`.
pub(crate) fn id_of(document: &RawDocument) -> Result<bson::Bson> {
    let id = crate::path::field(document, "_id").ok_or_else(|| Error::corrupt("a document without _id"))?;
    id.try_into().map_err(Error::corrupt)
}
