//! Objects as they travel, each at the newest version that was made or asked for: writers, readers and watchers
//! of one version share the work of making it.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use orlop_store::Revision;

/// Objects kept; more than a node has devices.
const OBJECTS_MAX: usize = 1024;
/// Bytes of an object that is kept. One that is larger is made anew for everyone who asks.
const OBJECT_BYTES_MAX: usize = 8 << 10;

/// What is known. There is one version for a key, so superseded ones do not pile up.
#[derive(Debug, Default)]
pub(crate) struct Encoded(Mutex<HashMap<Bytes, (Revision, Bytes)>>);

impl Encoded {
    pub(crate) fn get(&self, key: &[u8], revision: Revision) -> Option<Bytes> {
        let known = self.known();
        known.get(key).filter(|(known, _)| *known == revision).map(|(_, object)| object.clone())
    }

    pub(crate) fn put(&self, key: &[u8], revision: Revision, object: &Bytes) {
        if object.len() > OBJECT_BYTES_MAX {
            return;
        }
        let mut known = self.known();
        if let Some(version) = known.get_mut(key) {
            if version.0 < revision {
                *version = (revision, object.clone());
            }
            return;
        }
        if known.len() >= OBJECTS_MAX {
            known.clear();
        }
        // A copy: the key that was read shares the memory of all that was read with it.
        known.insert(Bytes::copy_from_slice(key), (revision, object.clone()));
    }

    pub(crate) fn forget(&self, key: &[u8]) {
        self.known().remove(key);
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Bytes, (Revision, Bytes)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_of_each_key_is_known_and_their_number_bounded() {
        let encoded = Encoded::default();
        let (old, new) = (Bytes::from_static(b"old"), Bytes::from_static(b"new"));
        encoded.put(b"a", 2, &new);
        encoded.put(b"a", 1, &old);
        assert_eq!(encoded.get(b"a", 2), Some(new.clone()));
        assert_eq!(encoded.get(b"a", 1), None);
        encoded.forget(b"a");
        assert_eq!(encoded.get(b"a", 2), None);
        for number in 0..2 * OBJECTS_MAX {
            encoded.put(number.to_string().as_bytes(), 1, &new);
        }
        assert!(encoded.known().len() <= OBJECTS_MAX);
        encoded.put(b"large", 1, &vec![0; OBJECT_BYTES_MAX + 1].into());
        assert_eq!(encoded.get(b"large", 1), None);
    }
}
