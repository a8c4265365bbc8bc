//! Prepared look-ups by `_id`.

use std::sync::Arc;

use bson::{
    Bson,
    raw::{RawBsonRef, RawDocument},
};

use crate::{
    commit::Committer,
    document::encode_id,
    error::{Error, Result},
    scan::view_document,
    store::Space,
};

/// Look-ups by `_id` in one collection, as a prepared statement is to other databases: the collection is resolved once,
/// and again when the catalog has changed.
#[derive(Debug, Clone)]
pub struct PreparedLookup {
    committer: Arc<Committer>,
    collection: String,
    /// Version of the catalog in which the collection has this space.
    version: u64,
    space: Space,
    /// Buffer for the encoded `_id`.
    key: Vec<u8>,
}

impl PreparedLookup {
    pub(crate) fn new(committer: Arc<Committer>, collection: &str) -> Result<Self> {
        let (version, space) = committer.resolve(collection)?;
        Ok(Self { committer, collection: collection.to_owned(), version, space, key: Vec::new() })
    }

    /// Returns the name of the collection.
    pub fn collection(&self) -> &str {
        &self.collection
    }

    /// Returns the document with an `_id` as of now, and hands its bytes to `read` without copying them. `read` must
    /// not use the engine, which is locked meanwhile.
    pub fn get<T>(&mut self, id: &Bson, read: impl FnOnce(&RawDocument) -> T) -> Result<Option<T>> {
        with_raw_id(id, |id| self.get_raw(id, read))
    }

    /// Returns the document with an `_id` that is still encoded.
    pub fn get_raw<T>(
        &mut self,
        id: RawBsonRef<'_>,
        read: impl FnOnce(&RawDocument) -> T,
    ) -> Result<Option<T>> {
        self.key.clear();
        encode_id(&mut self.key, id)?;
        let (mut read, mut result) = (Some(read), None);
        loop {
            if self.committer.catalog_version() != self.version {
                (self.version, self.space) = self.committer.resolve(&self.collection)?;
            }
            self.committer.store().read(self.space, &self.key, &mut |bytes| {
                // Only what is found uses up `read`: a second attempt may follow.
                if let Some(bytes) = bytes
                    && let Some(read) = read.take()
                {
                    result = Some(view_document(bytes).map(read));
                }
            })?;
            // A space is never used again, so a document in it was in the collection at that moment. If there is none,
            // the collection may have been dropped meanwhile.
            if result.is_some() || self.committer.catalog_version() == self.version {
                return result.transpose();
            }
        }
    }
}

/// Views an `_id` as encoded BSON; the usual types without encoding them.
pub(crate) fn with_raw_id<T>(id: &Bson, read: impl FnOnce(RawBsonRef<'_>) -> Result<T>) -> Result<T> {
    match id {
        Bson::Int32(id) => read(RawBsonRef::Int32(*id)),
        Bson::Int64(id) => read(RawBsonRef::Int64(*id)),
        Bson::String(id) => read(RawBsonRef::String(id)),
        Bson::ObjectId(id) => read(RawBsonRef::ObjectId(*id)),
        other => {
            let id =
                bson::RawBson::try_from(other.clone()).map_err(|error| Error::invalid(error.to_string()))?;
            read(id.as_raw_bson_ref())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use bson::{RawDocumentBuf, doc};
    use parking_lot::Mutex;

    use super::*;
    use crate::{
        Engine,
        store::{MemoryStore, Reader, Store, Writer},
    };

    /// A store that runs a function before its next read of one key.
    #[derive(Default)]
    struct Interrupted {
        store: MemoryStore,
        before_read: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    }

    impl fmt::Debug for Interrupted {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Interrupted").finish_non_exhaustive()
        }
    }

    impl Store for Interrupted {
        fn read(&self, space: Space, key: &[u8], read: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
            let interruption = self.before_read.lock().take();
            interruption.into_iter().for_each(|run| run());
            self.store.read(space, key, read)
        }

        fn snapshot(&self) -> Result<Box<dyn Reader + '_>> {
            self.store.snapshot()
        }

        fn is_in_memory(&self) -> bool {
            self.store.is_in_memory()
        }

        fn commits_without_blocking(&self) -> bool {
            self.store.commits_without_blocking()
        }

        fn begin(&self) -> Result<Box<dyn Writer + '_>> {
            self.store.begin()
        }

        fn size_bytes(&self) -> u64 {
            self.store.size_bytes()
        }

        fn flush(&self) -> Result<()> {
            self.store.flush()
        }
    }

    #[test]
    fn collection_created_anew_before_the_read_is_found() {
        let store = Arc::new(Interrupted::default());
        let engine = Engine::open(Arc::clone(&store) as Arc<dyn Store>).unwrap();
        let document = RawDocumentBuf::try_from(&doc! { "_id": 1 }).unwrap();
        let create = move |engine: &Engine| {
            let document = document.clone();
            engine.write(move |transaction| {
                transaction.create_collection("c")?;
                transaction.insert("c", &document)
            })
        };
        create(&engine).unwrap();
        let mut lookup = engine.prepare_lookup("c").unwrap();
        let other = engine.clone();
        *store.before_read.lock() = Some(Box::new(move || {
            other.drop_collection("c").unwrap();
            create(&other).unwrap();
        }));
        assert_eq!(lookup.get(&Bson::Int32(1), |_| ()).unwrap(), Some(()));
        assert_eq!(lookup.get(&Bson::Int32(2), |_| ()).unwrap(), None);
    }
}
