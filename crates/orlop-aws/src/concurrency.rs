//! Limits on the passes of single kinds that run at once.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    hash::Hash,
    sync::{Mutex, PoisonError},
};

/// Passes under way of each limited kind, and those that wait. A waiting pass holds no worker.
#[derive(Debug)]
pub(crate) struct Concurrency<T> {
    limits: BTreeMap<String, usize>,
    kinds: Mutex<HashMap<String, Passes<T>>>,
}

#[derive(Debug)]
struct Passes<T> {
    running: usize,
    waiting: VecDeque<T>,
    /// Those in `waiting`.
    queued: HashSet<T>,
}

impl<T: Clone + Eq + Hash> Concurrency<T> {
    pub(crate) fn new(limits: BTreeMap<String, usize>) -> Self {
        Self { limits, kinds: Mutex::default() }
    }

    /// True if a pass may run. Otherwise it waits, and [`Concurrency::finish`] returns it.
    pub(crate) fn start(&self, kind: &str, pass: &T) -> bool {
        let Some(limit) = self.limits.get(kind) else { return true };
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let passes = kinds.entry(kind.to_owned()).or_insert_with(|| Passes {
            running: 0,
            waiting: VecDeque::new(),
            queued: HashSet::new(),
        });
        if passes.running < *limit {
            passes.running += 1;
            return true;
        }
        if passes.queued.insert(pass.clone()) {
            passes.waiting.push_back(pass.clone());
        }
        false
    }

    /// Ends a pass. Returns the one that waits longest, to be queued again.
    pub(crate) fn finish(&self, kind: &str) -> Option<T> {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let passes = kinds.get_mut(kind)?;
        passes.running = passes.running.saturating_sub(1);
        let next = passes.waiting.pop_front()?;
        passes.queued.remove(&next);
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_beyond_the_limit_wait_in_order_and_once() {
        let concurrency = Concurrency::new(BTreeMap::from([("Function".to_owned(), 2)]));
        assert!(
            concurrency.start("Role", &0) && concurrency.start("Role", &1) && concurrency.start("Role", &2)
        );
        assert!(concurrency.start("Function", &1) && concurrency.start("Function", &2));
        for _ in 0..2 {
            assert!(!concurrency.start("Function", &3));
        }
        assert!(!concurrency.start("Function", &4));
        assert_eq!(concurrency.finish("Function"), Some(3));
        assert!(concurrency.start("Function", &3));
        assert_eq!(concurrency.finish("Function"), Some(4));
        assert_eq!(concurrency.finish("Function"), None);
        assert_eq!(concurrency.finish("Role"), None);
    }
}
