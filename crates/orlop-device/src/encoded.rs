//! A cache of encoded objects, at their newest version: writers, readers and watchers of a version encode it once.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use orlop_store::Revision;

/// Cached objects. More than a node has devices.
const OBJECTS_MAX: usize = 1024;
/// Largest cached object. A larger one is encoded for every reader.
const OBJECT_BYTES_MAX: usize = 8 << 10;

/// The cache, with one version per key.
#[derive(Debug, Default)]
pub(crate) struct EncodedCache(Mutex<HashMap<Bytes, (Revision, Bytes)>>);

impl EncodedCache {
    pub(crate) fn get(&self, key: &[u8], revision: Revision) -> Option<Bytes> {
        let cached = self.lock();
        cached.get(key).filter(|(version, _)| *version == revision).map(|(_, object)| object.clone())
    }

    pub(crate) fn put(&self, key: &[u8], revision: Revision, object: &Bytes) {
        if object.len() > OBJECT_BYTES_MAX {
            return;
        }
        let mut cached = self.lock();
        if let Some(version) = cached.get_mut(key) {
            if version.0 < revision {
                *version = (revision, object.clone());
            }
            return;
        }
        if cached.len() >= OBJECTS_MAX {
            cached.clear();
        }
        // Copied: the key is a slice of the page it was read with.
        cached.insert(Bytes::copy_from_slice(key), (revision, object.clone()));
    }

    pub(crate) fn remove(&self, key: &[u8]) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Bytes, (Revision, Bytes)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_version_of_each_key_is_cached_and_size_is_bounded() {
        let cache = EncodedCache::default();
        let (old, new) = (Bytes::from_static(b"old"), Bytes::from_static(b"new"));
        cache.put(b"a", 2, &new);
        cache.put(b"a", 1, &old);
        assert_eq!(cache.get(b"a", 2), Some(new.clone()));
        assert_eq!(cache.get(b"a", 1), None);
        cache.remove(b"a");
        assert_eq!(cache.get(b"a", 2), None);
        for number in 0..2 * OBJECTS_MAX {
            cache.put(number.to_string().as_bytes(), 1, &new);
        }
        assert!(cache.lock().len() <= OBJECTS_MAX);
        cache.put(b"large", 1, &vec![0; OBJECT_BYTES_MAX + 1].into());
        assert_eq!(cache.get(b"large", 1), None);
    }
}
