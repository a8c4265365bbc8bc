//! Which watchers a key concerns.
//!
//! Nearly every range watched is one key or a prefix, so those are found by hashing: the key itself, and
//! the key cut to each length that some watched prefix has. Other ranges are few and are asked one by one.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use bytes::Bytes;

use super::watcher::Shared;
use crate::{Commit, Event, KeyRange};

type Group = Vec<Arc<Shared>>;

/// Open watches, by what they watch.
#[derive(Debug, Default)]
pub(super) struct Matcher {
    keys: HashMap<Bytes, Group>,
    prefixes: BTreeMap<usize, HashMap<Bytes, Group>>,
    others: Group,
    open: usize,
}

impl Matcher {
    pub(super) fn insert(&mut self, watcher: Arc<Shared>) {
        self.open += 1;
        let range = watcher.range().clone();
        self.group(&range).push(watcher);
    }

    pub(super) fn remove(&mut self, watcher: &Arc<Shared>) {
        let range = watcher.range();
        let group = self.group(range);
        let Some(at) = group.iter().position(|other| Arc::ptr_eq(other, watcher)) else { return };
        group.swap_remove(at);
        let emptied = group.is_empty();
        self.open -= 1;
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

    fn group(&mut self, range: &KeyRange) -> &mut Group {
        if let Some(key) = range.single() {
            self.keys.entry(key.clone()).or_default()
        } else if let Some(prefix) = range.as_prefix() {
            self.prefixes.entry(prefix.len()).or_default().entry(prefix.clone()).or_default()
        } else {
            &mut self.others
        }
    }

    /// Calls `found` for each event of the commit and each watcher that it concerns.
    pub(super) fn each<'a>(&self, commit: &'a Commit, mut found: impl FnMut(&Arc<Shared>, &'a Event)) {
        for event in &commit.events {
            let key = &event.kv.key;
            let prefixes =
                self.prefixes.range(..=key.len()).filter_map(|(length, same)| same.get(&key[..*length]));
            let groups = self.keys.get(key).into_iter().chain(prefixes);
            let others = self.others.iter().filter(|watcher| watcher.range().contains(key));
            let concerned = groups.flatten().chain(others).filter(|watcher| watcher.wants(event));
            concerned.for_each(|watcher| found(watcher, event));
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Shared>> {
        let prefixes = self.prefixes.values().flat_map(HashMap::values);
        self.keys.values().chain(prefixes).flatten().chain(&self.others)
    }

    pub(super) fn open(&self) -> usize {
        self.open
    }
}
