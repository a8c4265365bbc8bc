//! The engine: what callers do with collections and documents.

use std::{cell::Cell, sync::Arc, time::Instant};

use bson::{
    Bson, Document, RawDocumentBuf, doc,
    oid::ObjectId,
    raw::{RawBsonRef, RawDocument},
};

use crate::{
    catalog::{Catalog, Collection, FailedBuilds},
    commit::{Committer, PendingWrite},
    error::Result,
    lookup::{PreparedLookup, with_raw_id},
    query::{self, Query},
    scan::{Examined, view_document},
    store::{MemoryStore, Store},
    transaction::Transaction,
};

thread_local! {
    /// Buffer for the key of a look-up, which would else allocate nothing.
    static KEY: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A database. Clones share it.
#[derive(Debug, Clone)]
pub struct Engine {
    pub(crate) committer: Arc<Committer>,
    boot_id: Arc<str>,
    pub(crate) failed: Arc<FailedBuilds>,
}

impl Engine {
    /// Opens the database in a store.
    pub fn open(store: Arc<dyn Store>) -> Result<Self> {
        let committer = Arc::new(Committer::new(store)?);
        Ok(Self { committer, boot_id: ObjectId::new().to_hex().into(), failed: Arc::default() })
    }

    /// Opens an empty database in memory.
    pub fn in_memory() -> Self {
        // A new memory store has nothing that could fail to load.
        #[allow(clippy::expect_used, reason = "an empty store is always readable")]
        Self::open(Arc::new(MemoryStore::default())).expect("an empty store")
    }

    /// Returns an id that is new with every opening.
    pub fn boot_id(&self) -> &str {
        &self.boot_id
    }

    /// Submits a transaction. It commits together with others when its ticket is waited for.
    pub fn submit<T, F>(&self, job: F) -> PendingWrite<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Transaction<'_>) -> Result<T> + Send + 'static,
    {
        self.committer.submit(job)
    }

    /// Runs a transaction and returns when it is durable.
    pub fn write<T, F>(&self, job: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Transaction<'_>) -> Result<T> + Send + 'static,
    {
        self.submit(job).wait()
    }

    /// Runs a transaction on a store that ends with the process, unless another one is being run: then its job is handed
    /// back. It takes as long as the job does, so that small ones need not leave their thread.
    pub fn try_write<T, F>(&self, job: F) -> std::result::Result<Result<T>, F>
    where
        F: FnOnce(&mut Transaction<'_>) -> Result<T>,
    {
        self.committer.try_run(job)
    }

    /// Returns the catalog.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.committer.catalog()
    }

    /// Returns a collection.
    pub fn collection(&self, name: &str) -> Result<Arc<Collection>> {
        self.catalog().get(name).cloned()
    }

    /// Creates a collection.
    pub fn create_collection(&self, name: &str) -> Result<()> {
        let name = name.to_owned();
        self.write(move |transaction| transaction.create_collection(&name))
    }

    /// Drops a collection.
    pub fn drop_collection(&self, name: &str) -> Result<()> {
        let name = name.to_owned();
        self.write(move |transaction| transaction.drop_collection(&name))
    }

    /// Inserts one document and returns its `_id`.
    pub fn insert(&self, collection: &str, document: &Document) -> Result<Bson> {
        let collection = collection.to_owned();
        let document = raw(document)?;
        self.write(move |transaction| transaction.insert(&collection, &document))
    }

    /// Visits the documents of a query, without its projection, until `visit` returns false.
    pub fn visit(
        &self,
        collection: &str,
        query: &Query,
        visit: &mut dyn FnMut(&RawDocument) -> Result<bool>,
    ) -> Result<Examined> {
        let (catalog, reader) = self.committer.snapshot()?;
        query::run(reader.as_ref(), catalog.get(collection)?, query, &mut |_, document| visit(document))
    }

    /// Returns the documents of a query.
    pub fn find(&self, collection: &str, query: &Query) -> Result<Vec<RawDocumentBuf>> {
        let (catalog, reader) = self.committer.snapshot()?;
        query::collect(reader.as_ref(), catalog.get(collection)?, query)
    }

    /// Returns the document with an `_id`, and hands its bytes to `read` without copying them. `read` must not use
    /// the engine, which is locked meanwhile.
    pub fn get<T>(
        &self,
        collection: &str,
        id: &Bson,
        read: impl FnOnce(&RawDocument) -> T,
    ) -> Result<Option<T>> {
        with_raw_id(id, |id| self.get_raw(collection, id, read))
    }

    /// Prepares look-ups by `_id` in a collection, which then need not be found by its name each time.
    pub fn prepare_lookup(&self, collection: &str) -> Result<PreparedLookup> {
        PreparedLookup::new(Arc::clone(&self.committer), collection)
    }

    /// Returns the document with an `_id` that is still encoded.
    pub fn get_raw<T>(
        &self,
        collection: &str,
        id: RawBsonRef<'_>,
        read: impl FnOnce(&RawDocument) -> T,
    ) -> Result<Option<T>> {
        // Taken, not borrowed: `read` may come here again.
        let mut key = KEY.take();
        key.clear();
        let (mut read, mut result) = (Some(read), Ok(None));
        let found = crate::document::encode_id(&mut key, id).and_then(|()| {
            self.committer.read(collection, &key, &mut |bytes| {
                if let (Some(bytes), Some(read)) = (bytes, read.take()) {
                    result = view_document(bytes).map(|document| Some(read(document)));
                }
            })
        });
        KEY.set(key);
        found.and(result)
    }

    /// Returns true if a look-up waits for nothing now, so that it need not leave its thread.
    pub fn reads_without_blocking(&self) -> bool {
        self.committer.reads_without_blocking()
    }

    /// Counts the documents of a query.
    pub fn count(&self, collection: &str, query: &Query) -> Result<u64> {
        let (catalog, reader) = self.committer.snapshot()?;
        query::count(reader.as_ref(), catalog.get(collection)?, query)
    }

    /// Explains a query: its plan, and the work of running it.
    pub fn explain(&self, collection: &str, query: &Query) -> Result<Document> {
        let began = Instant::now();
        let (catalog, reader) = self.committer.snapshot()?;
        let collection = catalog.get(collection)?;
        let plan = query::plan(reader.as_ref(), collection, query)?;
        let examined = query::run_plan(reader.as_ref(), collection, query, &plan, &mut |_, _| Ok(true))?;
        Ok(doc! {
            "queryPlanner": {
                "namespace": &collection.name,
                "winningPlan": plan.describe(collection, !query.sort.is_empty()),
            },
            "executionStats": {
                "nReturned": examined.returned as i64,
                "totalKeysExamined": examined.keys as i64,
                "totalDocsExamined": examined.documents as i64,
                "executionTimeMillis": began.elapsed().as_millis() as i64,
            },
        })
    }

    /// Returns the number of documents in a collection.
    pub fn document_count(&self, collection: &str) -> Result<u64> {
        self.count(collection, &Query::default())
    }

    /// Returns the size of the store in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.committer.store().size_bytes()
    }

    /// Writes everything to its final place, for a clean shutdown.
    pub fn flush(&self) -> Result<()> {
        self.committer.store().flush()
    }
}

pub(crate) fn raw(document: &Document) -> Result<RawDocumentBuf> {
    RawDocumentBuf::try_from(document).map_err(|error| crate::Error::invalid(error.to_string()))
}
