//! A cache of webhooks' answers, bounded in entries, with a time to live for each.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Digest of a review's spec. Specs are the clients' and may be long.
pub(super) type Key = [u8; 32];

/// Answers by the digests of their reviews.
///
/// There are two generations: when the young one is full, it becomes the old one, and the entries of the old one
/// that nobody asked for in the meantime are dropped.
#[derive(Debug)]
pub(super) struct ResponseCache<T> {
    generation_entries_max: usize,
    generations: Mutex<[HashMap<Key, (T, Instant)>; 2]>,
}

impl<T: Clone> ResponseCache<T> {
    /// Returns an empty cache of at most `entries_max` entries.
    pub(super) fn new(entries_max: usize) -> Self {
        Self { generation_entries_max: (entries_max / 2).max(1), generations: Mutex::default() }
    }

    pub(super) fn get(&self, key: &Key, now: Instant) -> Option<T> {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        let [young, old] = &mut *generations;
        if let Some((value, expires)) = young.get(key) {
            return (now < *expires).then(|| value.clone());
        }
        let (value, expires) = old.remove(key)?;
        if now >= expires {
            return None;
        }
        self.put(&mut generations, *key, value.clone(), expires);
        Some(value)
    }

    /// Keeps a value for a time; not at all if that is zero.
    pub(super) fn insert(&self, key: Key, value: T, now: Instant, time_to_live: Duration) {
        let Some(expires) = now.checked_add(time_to_live).filter(|_| !time_to_live.is_zero()) else { return };
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        self.put(&mut generations, key, value, expires);
    }

    fn put(&self, generations: &mut [HashMap<Key, (T, Instant)>; 2], key: Key, value: T, expires: Instant) {
        let [young, old] = generations;
        if young.len() >= self.generation_entries_max && !young.contains_key(&key) {
            *old = std::mem::take(young);
        }
        young.insert(key, (value, expires));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_expire_and_are_bounded() {
        let (cache, now) = (ResponseCache::new(8), Instant::now());
        let key = |number: u8| [number; 32];
        cache.insert(key(1), 'a', now, Duration::from_secs(5));
        cache.insert(key(2), 'b', now, Duration::ZERO);
        assert_eq!([cache.get(&key(1), now), cache.get(&key(2), now)], [Some('a'), None]);
        assert_eq!(cache.get(&key(1), now + Duration::from_secs(5)), None);
        for number in 3..100 {
            cache.insert(key(number), 'c', now, Duration::from_secs(5));
            // In use: it stays.
            assert_eq!(cache.get(&key(1), now), Some('a'), "{number}");
        }
        let generations = cache.generations.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(generations[0].len() + generations[1].len() <= 8);
    }
}
