//! Online index builds, in bounded steps.
//!
//! A new index on a collection with documents is registered as *building*: writes maintain it at once,
//! queries ignore it. Each step is one transaction that indexes the next documents by `_id` and records
//! where to continue, so other writes run between steps, and a build survives a restart.

use bson::{Document, doc, raw::RawDocument};

use crate::{
    catalog::{Build, ID_INDEX, Index, IndexSpec},
    engine::Engine,
    error::{Error, Result},
    store::{Direction, Range},
    transaction::Transaction,
};

/// Documents indexed per step.
const STEP_DOCUMENTS: usize = 1000;
/// Bytes of documents read per step.
const STEP_BYTES: usize = 4 << 20;
/// Most failed builds that are remembered.
const FAILURES_MAX: usize = 1000;

/// An index and the state of its build.
#[derive(Debug, Clone)]
pub struct IndexStatus {
    /// Definition, or `None` for the index on `_id`.
    pub spec: Option<IndexSpec>,
    /// True if queries use the index.
    pub ready: bool,
    /// Documents indexed so far.
    pub indexed: u64,
    /// Documents in the collection.
    pub total: u64,
}

impl IndexStatus {
    /// Returns the index as MongoDB describes it.
    pub fn to_document(&self) -> Document {
        match &self.spec {
            None => doc! { "v": 2, "key": { "_id": 1 }, "name": ID_INDEX },
            Some(spec) => spec.to_document(),
        }
    }
}

impl Engine {
    /// Registers an index without building it. Returns false if it exists already.
    pub fn start_index(&self, collection: &str, spec: IndexSpec) -> Result<bool> {
        self.forget_failed_build(collection, &spec.name);
        let collection = collection.to_owned();
        self.write(move |transaction| transaction.create_index(&collection, spec))
    }

    /// Creates an index and builds it. Returns false if it exists already.
    pub fn create_index(&self, collection: &str, spec: IndexSpec) -> Result<bool> {
        let name = spec.name.clone();
        let created = self.start_index(collection, spec)?;
        loop {
            match self.build_step(collection, &name) {
                Ok(true) => return Ok(created),
                Ok(false) => {}
                // Another builder may have met the failure, and dropped the index.
                Err(error @ Error::NoIndex(_)) => {
                    let mut failed = self.failed_builds(collection)?.into_iter();
                    return Err(failed.find(|(spec, _)| spec.name == name).map_or(error, |(_, error)| error));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the builds in the background that failed, with the reason: those whose index has not been created anew.
    pub fn failed_builds(&self, collection: &str) -> Result<Vec<(IndexSpec, Error)>> {
        let collection = self.collection(collection)?;
        let failed = self.failed.lock();
        let of_collection = failed.range((collection.space, String::new())..);
        Ok(of_collection
            .take_while(|((space, _), _)| *space == collection.space)
            .filter(|((_, name), _)| collection.index(name).is_none())
            .map(|(_, failure)| failure.clone())
            .collect())
    }

    /// Forgets that the build of an index failed. Returns true if it did.
    pub fn forget_failed_build(&self, collection: &str, index: &str) -> bool {
        let Ok(collection) = self.collection(collection) else { return false };
        self.failed.lock().remove(&(collection.space, index.to_owned())).is_some()
    }

    /// Drops an index.
    pub fn drop_index(&self, collection: &str, index: &str) -> Result<()> {
        let (collection, index) = (collection.to_owned(), index.to_owned());
        self.write(move |transaction| transaction.drop_index(&collection, &index))
    }

    /// Returns the indexes of a collection, that on `_id` first.
    pub fn indexes(&self, collection: &str) -> Result<Vec<IndexStatus>> {
        let total = self.document_count(collection)?;
        let id = IndexStatus { spec: None, ready: true, indexed: total, total };
        let status = |index: &Index| {
            let indexed = match &index.build {
                Build::Ready => total,
                Build::Building { indexed, .. } => *indexed,
            };
            IndexStatus { spec: Some(index.spec.clone()), ready: index.is_ready(), indexed, total }
        };
        let collection = self.collection(collection)?;
        Ok(std::iter::once(id).chain(collection.indexes.iter().map(status)).collect())
    }

    /// Runs one step of a build. Returns true when the index is ready. A build that meets a duplicate in a
    /// unique index fails, and the index is dropped.
    pub fn build_step(&self, collection: &str, index: &str) -> Result<bool> {
        let (name, index) = (collection.to_owned(), index.to_owned());
        let (job_name, job_index) = (name.clone(), index.clone());
        let step = self.write(move |transaction| step(transaction, &job_name, &job_index));
        if let Err(Error::DuplicateKey { .. } | Error::Invalid(_) | Error::TooLarge(_)) = &step {
            // The index cannot hold what is in the collection. Another builder may have dropped it first.
            let _ = self.drop_index(&name, &index);
        }
        step
    }

    /// Runs one step of every unfinished build. Returns true if some remain unfinished.
    pub fn build_pending(&self) -> Result<bool> {
        let mut remain = false;
        for collection in self.catalog().collections() {
            for index in collection.indexes.iter().filter(|index| !index.is_ready()) {
                match self.build_step(&collection.name, &index.spec.name) {
                    Ok(ready) => remain |= !ready,
                    // Dropped meanwhile, or failed and dropped.
                    Err(Error::NoIndex(_) | Error::NoCollection(_)) => {}
                    Err(error @ (Error::DuplicateKey { .. } | Error::Invalid(_) | Error::TooLarge(_))) => {
                        tracing::warn!(collection = collection.name, index = index.spec.name, %error, "index build failed");
                        let mut failed = self.failed.lock();
                        if failed.len() >= FAILURES_MAX {
                            failed.pop_first();
                        }
                        failed
                            .insert((collection.space, index.spec.name.clone()), (index.spec.clone(), error));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(remain)
    }
}

fn step(transaction: &mut Transaction<'_>, name: &str, index_name: &str) -> Result<bool> {
    let collection = transaction.collection(name)?;
    let position = collection.index(index_name).ok_or_else(|| Error::NoIndex(index_name.to_owned()))?;
    let index = &collection.indexes[position];
    let Build::Building { next, indexed } = &index.build else { return Ok(true) };
    let mut batch: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let mut bytes = 0;
    {
        let range = Range { start: next.clone(), end: None };
        let mut cursor = transaction.reader().cursor(collection.space, &range, Direction::Forward)?;
        while batch.len() < STEP_DOCUMENTS && bytes < STEP_BYTES && cursor.advance()? {
            bytes += cursor.value().len();
            batch.push((cursor.key().to_vec(), cursor.value().to_vec()));
        }
    }
    let mut multikey = false;
    for (id, document) in &batch {
        let document = RawDocument::from_bytes(document).map_err(Error::corrupt)?;
        multikey |= transaction.backfill(index, id, document)?;
    }
    let build = match batch.pop() {
        Some((mut last, _)) => {
            // The least key after the last one.
            last.push(0);
            Build::Building { next: last, indexed: indexed + batch.len() as u64 + 1 }
        }
        None => Build::Ready,
    };
    let ready = build == Build::Ready;
    transaction.set_build(name, index_name, build, multikey)?;
    Ok(ready)
}
