//! Finds the watchers of a key.
//!
//! Nearly every watched range is one key or a prefix. Those are found by hashing: the key itself, and the key
//! cut to each length that some watched prefix has. Other ranges are few and are tested one by one.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use bytes::Bytes;

use super::subscription::Subscription;
use crate::{Commit, Event, KeyRange};

type Subscriptions = Vec<Arc<Subscription>>;

/// Open watches by range.
#[derive(Debug, Default)]
pub(super) struct WatcherIndex {
    keys: HashMap<Bytes, Subscriptions>,
    prefixes: BTreeMap<usize, HashMap<Bytes, Subscriptions>>,
    intervals: Subscriptions,
    len: usize,
}

impl WatcherIndex {
    pub(super) fn insert(&mut self, subscription: Arc<Subscription>) {
        self.len += 1;
        let range = subscription.range().clone();
        self.same_range(&range).push(subscription);
    }

    pub(super) fn remove(&mut self, subscription: &Arc<Subscription>) {
        let range = subscription.range();
        let same_range = self.same_range(range);
        let Some(at) = same_range.iter().position(|other| Arc::ptr_eq(other, subscription)) else { return };
        same_range.swap_remove(at);
        let emptied = same_range.is_empty();
        self.len -= 1;
        if !emptied {
            return;
        }
        if let Some(key) = range.single() {
            self.keys.remove(key);
        } else if let Some(prefix) = range.as_prefix()
            && let Some(same_length) = self.prefixes.get_mut(&prefix.len())
        {
            same_length.remove(prefix);
            if same_length.is_empty() {
                self.prefixes.remove(&prefix.len());
            }
        }
    }

    fn same_range(&mut self, range: &KeyRange) -> &mut Subscriptions {
        if let Some(key) = range.single() {
            self.keys.entry(key.clone()).or_default()
        } else if let Some(prefix) = range.as_prefix() {
            self.prefixes.entry(prefix.len()).or_default().entry(prefix.clone()).or_default()
        } else {
            &mut self.intervals
        }
    }

    /// Calls `visit` for each event of the commit and each watcher that selects it.
    pub(super) fn for_each_match<'a>(
        &self,
        commit: &'a Commit,
        mut visit: impl FnMut(&Arc<Subscription>, &'a Event),
    ) {
        for event in &commit.events {
            let key = &event.kv.key;
            let prefixes =
                self.prefixes.range(..=key.len()).filter_map(|(length, same)| same.get(&key[..*length]));
            let hashed = self.keys.get(key).into_iter().chain(prefixes).flatten();
            let intervals = self.intervals.iter().filter(|subscription| subscription.range().contains(key));
            let selecting = hashed.chain(intervals).filter(|subscription| subscription.selects(event));
            selecting.for_each(|subscription| visit(subscription, event));
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Subscription>> {
        let prefixes = self.prefixes.values().flat_map(HashMap::values);
        self.keys.values().chain(prefixes).flatten().chain(&self.intervals)
    }

    /// Returns the number of open watches.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}
