//! Remaining counts of paged reads.
//!
//! A client that pages through a range at one revision asks for the total with every page. Counting again each
//! time makes the whole walk quadratic. The count after a page is the count before it less the page, so it is
//! cached for a bounded number of walks.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, PoisonError},
};

use crate::{Filter, KeyRange, Read, Revision};

/// Walks cached at a time.
const WALKS_MAX: usize = 1024;

/// Identifies the rest of a walk.
type Walk = (KeyRange, Revision, Filter);

/// Cache of the remaining counts of walks.
#[derive(Debug, Default)]
pub(crate) struct PageCounts(Mutex<Cache>);

#[derive(Debug, Default)]
struct Cache {
    counts: HashMap<Walk, u64>,
    oldest_first: VecDeque<Walk>,
}

impl PageCounts {
    /// Returns the count of a read that continues a walk.
    pub(crate) fn get(&self, read: &Read) -> Option<u64> {
        let walk = (read.range.clone(), read.revision?, read.filter.clone());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).counts.get(&walk).copied()
    }

    /// Drops every walk: index terms have changed without new revisions.
    pub(crate) fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Cache::default();
    }

    /// Stores the number of keys left after a page whose last key is `last_key`.
    pub(crate) fn insert(&self, read: &Read, revision: Revision, last_key: &[u8], remaining: u64) {
        let walk = (read.range.after(last_key), read.revision.unwrap_or(revision), read.filter.clone());
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.counts.insert(walk.clone(), remaining).is_none() {
            cache.oldest_first.push_back(walk);
        }
        if cache.oldest_first.len() > WALKS_MAX
            && let Some(oldest) = cache.oldest_first.pop_front()
        {
            cache.counts.remove(&oldest);
        }
    }
}
