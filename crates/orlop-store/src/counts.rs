//! What is left to count of a paged read.
//!
//! A client that pages through a range at one revision asks with every page how many keys there are.
//! Counting afresh makes the whole walk quadratic; but what remains after a page is known: the count before
//! it less the page. So that is remembered, for a bounded number of readers.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, PoisonError},
};

use crate::{Filter, KeyRange, Read, Revision};

/// Walks remembered at a time.
const WALKS: usize = 1024;

type Walk = (KeyRange, Revision, Filter);

/// Counts of the rest of walks under way.
#[derive(Debug, Default)]
pub(crate) struct Counts(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    counts: HashMap<Walk, u64>,
    oldest_first: VecDeque<Walk>,
}

impl Counts {
    /// The count of a read, if it goes on with a walk.
    pub(crate) fn known(&self, read: &Read) -> Option<u64> {
        let walk = (read.range.clone(), read.revision?, read.filter.clone());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).counts.get(&walk).copied()
    }

    /// Forgets every walk, when terms change under revisions that stay.
    pub(crate) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Known::default();
    }

    /// Remembers what is left of a read after its page at a revision, whose last key is this one.
    pub(crate) fn learn(&self, read: &Read, revision: Revision, last_key: &[u8], rest: u64) {
        let walk = (read.range.after(last_key), read.revision.unwrap_or(revision), read.filter.clone());
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.counts.insert(walk.clone(), rest).is_none() {
            known.oldest_first.push_back(walk);
        }
        if known.oldest_first.len() > WALKS
            && let Some(oldest) = known.oldest_first.pop_front()
        {
            known.counts.remove(&oldest);
        }
    }
}
