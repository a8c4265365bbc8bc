//! Documents that have been made, and what they were made from.

use std::{
    collections::HashMap,
    fmt::Write,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use orlop_api::schema::builtin;
use sha2::{Digest, Sha512};

use super::{Form, custom};
use crate::registry::{Kind, KindSchema};

/// Bytes of compressed documents that are kept; those of the built-in kinds are a tenth of this.
const BYTES_MAX: usize = 4 << 20;

/// The documents of one cluster.
#[derive(Debug, Default)]
pub(crate) struct Cache(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    entries: HashMap<(bool, String), Entry>,
    /// Counts uses, to tell which documents have not been used for longest.
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    kinds: Vec<Arc<Kind>>,
    hash: Arc<str>,
    document: Option<Bytes>,
    used: u64,
}

impl Cache {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The hash of a document of these kinds, which need not have been made.
    pub(crate) fn hash(&self, form: Form, path: &str, kinds: &[Arc<Kind>]) -> Arc<str> {
        let key = (form == Form::V2, path.to_owned());
        let mut state = self.state();
        if let Some(entry) = state.entries.get(&key)
            && entry.kinds.len() == kinds.len()
            && entry.kinds.iter().zip(kinds).all(|(a, b)| Arc::ptr_eq(a, b))
        {
            return entry.hash.clone();
        }
        let hash: Arc<str> = fingerprint(kinds).into();
        let unchanged = state.entries.remove(&key).filter(|entry| entry.hash == hash);
        let document = unchanged.and_then(|entry| entry.document);
        let entry = Entry { kinds: kinds.to_vec(), hash: hash.clone(), document, used: 0 };
        state.entries.insert(key, entry);
        hash
    }

    /// A document that has been made of the kinds that [`Self::hash`] was last asked for.
    pub(crate) fn document(&self, form: Form, path: &str) -> Option<Bytes> {
        let mut state = self.state();
        state.clock += 1;
        let clock = state.clock;
        let entry = state.entries.get_mut(&(form == Form::V2, path.to_owned()))?;
        entry.used = clock;
        entry.document.clone()
    }

    /// Keeps a document, and lets go of those that have not been used for longest if there are too many.
    pub(crate) fn insert(&self, form: Form, path: &str, kinds: &[Arc<Kind>], document: Bytes) {
        let mut state = self.state();
        state.clock += 1;
        let clock = state.clock;
        if let Some(entry) = state.entries.get_mut(&(form == Form::V2, path.to_owned()))
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

/// The tables that built-in kinds' schemas are made from.
static TABLES: LazyLock<Vec<u8>> = LazyLock::new(|| Sha512::digest(builtin::table()).to_vec());

fn fingerprint(kinds: &[Arc<Kind>]) -> String {
    let mut digest = Sha512::new();
    digest.update(env!("CARGO_PKG_VERSION"));
    digest.update(&*TABLES);
    for kind in kinds {
        let Kind { gvk, list_kind, resource, verbs, subresources, namespaced, .. } = &**kind;
        digest.update(format!("{gvk:?}{list_kind}/{resource}/{verbs:?}{subresources:?}{namespaced}\n"));
        match &kind.schema {
            KindSchema::Builtin(_) => {}
            KindSchema::Owned(_) => digest.update(custom::schema(kind, Form::V3).to_string()),
            KindSchema::Lazy(source) => digest.update(source.fingerprint()),
        }
    }
    digest.finalize().iter().fold(String::with_capacity(128), |mut hex, byte| {
        // Writing to a string does not fail.
        let _ = write!(hex, "{byte:02X}");
        hex
    })
}
