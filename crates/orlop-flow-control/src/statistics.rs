//! Sizes of collections, as the lists of them found them.
//!
//! A list that has been answered tells how many objects there are and how large: nothing is counted for an estimate.

use std::{
    collections::HashMap,
    sync::{PoisonError, RwLock},
};

use orlop_auth::request::Attributes;

/// Collections that are remembered.
const COLLECTIONS_MAX: usize = 4096;

/// Size of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CollectionSize {
    pub(crate) objects: u64,
    pub(crate) average_bytes: u64,
}

/// Sizes of collections: of a resource, in one namespace or in all.
#[derive(Debug, Default)]
pub struct ListStatistics(RwLock<HashMap<Collection, CollectionSize>>);

/// Resource, group and namespace.
type Collection = (String, String, String);

fn collection(attributes: &Attributes) -> Collection {
    (attributes.resource.clone(), attributes.group.clone(), attributes.namespace.clone())
}

impl ListStatistics {
    /// Records the objects of a whole collection and their bytes.
    pub fn record(&self, attributes: &Attributes, objects: u64, bytes: u64) {
        let size = CollectionSize { objects, average_bytes: bytes.div_ceil(objects.max(1)) };
        let collection = collection(attributes);
        // Most lists find what the last one found.
        if self.0.read().unwrap_or_else(PoisonError::into_inner).get(&collection) == Some(&size) {
            return;
        }
        let mut sizes = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if sizes.len() >= COLLECTIONS_MAX && !sizes.contains_key(&collection) {
            // Rare, and the next lists fill it again.
            sizes.clear();
        }
        sizes.insert(collection, size);
    }

    /// Returns the size of a collection, if it is known.
    pub(crate) fn of(&self, attributes: &Attributes) -> Option<CollectionSize> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&collection(attributes)).copied()
    }
}
