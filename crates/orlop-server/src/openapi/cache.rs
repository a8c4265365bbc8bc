//! Cache of OpenAPI documents and their hashes.

use std::{
    collections::HashMap,
    fmt::Write,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use orlop_api::schema::builtin;
use sha2::{Digest, Sha512};

use super::{SpecVersion, custom, descriptions::COMPRESSED};
use crate::registry::{Kind, KindSchema};

/// Bytes of compressed documents in the cache; built-in kinds take a tenth.
const BYTES_MAX: usize = 4 << 20;

/// The documents of one cluster.
#[derive(Debug, Default)]
pub(crate) struct Cache(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    entries: HashMap<(bool, String), Entry>,
    /// Logical clock for least recently used eviction.
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    kinds: Vec<Arc<Kind>>,
    /// Tag of documents that are merged into this one.
    merged: String,
    hash: Arc<str>,
    document: Option<Bytes>,
    used: u64,
}

impl Cache {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the hash of the document of these kinds, without building it. `merged` is a tag of what other servers'
    /// documents add to it.
    pub(crate) fn hash(
        &self,
        spec_version: SpecVersion,
        path: &str,
        kinds: &[Arc<Kind>],
        merged: &str,
    ) -> Arc<str> {
        let key = (spec_version == SpecVersion::V2, path.to_owned());
        let mut state = self.state();
        if let Some(entry) = state.entries.get(&key)
            && entry.merged == merged
            && entry.kinds.len() == kinds.len()
            && entry.kinds.iter().zip(kinds).all(|(a, b)| Arc::ptr_eq(a, b))
        {
            return entry.hash.clone();
        }
        let hash: Arc<str> = fingerprint(kinds, merged).into();
        let unchanged = state.entries.remove(&key).filter(|entry| entry.hash == hash);
        let document = unchanged.and_then(|entry| entry.document);
        let merged = merged.to_owned();
        let entry = Entry { kinds: kinds.to_vec(), merged, hash: hash.clone(), document, used: 0 };
        state.entries.insert(key, entry);
        hash
    }

    /// Returns a cached document of the kinds that [`Self::hash`] was last called with.
    pub(crate) fn document(&self, spec_version: SpecVersion, path: &str) -> Option<Bytes> {
        let mut state = self.state();
        state.clock += 1;
        let clock = state.clock;
        let entry = state.entries.get_mut(&(spec_version == SpecVersion::V2, path.to_owned()))?;
        entry.used = clock;
        entry.document.clone()
    }

    /// Caches a document, and evicts the least recently used ones.
    pub(crate) fn insert(&self, spec_version: SpecVersion, path: &str, kinds: &[Arc<Kind>], document: Bytes) {
        let mut state = self.state();
        state.clock += 1;
        let clock = state.clock;
        if let Some(entry) = state.entries.get_mut(&(spec_version == SpecVersion::V2, path.to_owned()))
            && entry.kinds.iter().zip(kinds).all(|(a, b)| Arc::ptr_eq(a, b))
        {
            (entry.document, entry.used) = (Some(document), clock);
        }
        let size = |state: &State| -> usize {
            state.entries.values().filter_map(|entry| entry.document.as_ref()).map(Bytes::len).sum()
        };
        while size(&state) > BYTES_MAX {
            let made = state.entries.values_mut().filter(|entry| entry.document.is_some());
            match made.min_by_key(|entry| entry.used) {
                Some(oldest) => oldest.document = None,
                None => return,
            }
        }
    }
}

/// Digest of the tables of built-in schemas and of their descriptions.
static TABLES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    Sha512::new().chain_update(builtin::table()).chain_update(COMPRESSED).finalize().to_vec()
});

fn fingerprint(kinds: &[Arc<Kind>], merged: &str) -> String {
    let mut digest = Sha512::new();
    digest.update(merged);
    digest.update(env!("CARGO_PKG_VERSION"));
    digest.update(&*TABLES);
    for kind in kinds {
        let Kind { gvk, list_kind, resource, verbs, subresources, namespaced, .. } = &**kind;
        digest.update(format!("{gvk:?}{list_kind}/{resource}/{verbs:?}{subresources:?}{namespaced}\n"));
        match &kind.schema {
            KindSchema::Builtin(_) => {}
            KindSchema::Owned(_) => digest.update(custom::schema(kind, SpecVersion::V3).to_string()),
            KindSchema::Lazy(source) => digest.update(source.fingerprint()),
        }
    }
    digest.finalize().iter().fold(String::with_capacity(128), |mut hex, byte| {
        // Writing to a string does not fail.
        let _ = write!(hex, "{byte:02X}");
        hex
    })
}
