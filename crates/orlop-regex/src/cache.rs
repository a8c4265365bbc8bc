//! A cache of compiled patterns with a memory budget.
//!
//! A compiled pattern takes about 20 KiB once used, mostly for its lazy DFA. Thousands of schemas repeat the same
//! few patterns, and a hostile schema holds tens of thousands. The cache shares compiled patterns by their text and
//! evicts by second chance (CLOCK) beyond its budget; an evicted pattern is compiled again when next used.

use crate::{COMPILED_BYTES_MAX, Regex, compile};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// Memory budget of the process-wide cache.
pub const CACHE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Estimated memory of a compiled pattern and its search caches.
const ENTRY_BYTES: usize = 20 * 1024;
/// Estimated memory per byte of pattern text.
const ENTRY_BYTES_PER_BYTE: usize = 128;

/// A compiled pattern of a cache.
#[derive(Debug)]
pub struct CachedRegex {
    regex: Regex,
    /// Estimated memory.
    bytes: usize,
    /// Set on use, cleared by the eviction hand.
    used: AtomicBool,
}

impl CachedRegex {
    /// Returns whether the pattern matches, and marks it as recently used.
    pub fn is_match(&self, text: &str) -> bool {
        self.used.store(true, Ordering::Relaxed);
        self.regex.is_match(text)
    }
}

/// Compiled patterns by their text.
#[derive(Debug)]
pub struct RegexCache {
    bytes_max: usize,
    bytes: usize,
    entries: HashMap<Arc<str>, Arc<CachedRegex>>,
    /// Eviction order: the hand is at the front.
    clock: VecDeque<Arc<str>>,
}

impl RegexCache {
    /// Creates an empty cache with a memory budget.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, bytes: 0, entries: HashMap::new(), clock: VecDeque::new() }
    }

    /// Returns the estimated memory of the cached patterns.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn get(&self, pattern: &str) -> Option<Arc<CachedRegex>> {
        self.entries.get(pattern).cloned()
    }

    fn insert(&mut self, pattern: &str, regex: Regex) -> Arc<CachedRegex> {
        // Another thread may have compiled it meanwhile.
        if let Some(found) = self.get(pattern) {
            return found;
        }
        let bytes = entry_bytes(pattern);
        self.evict(self.bytes_max.saturating_sub(bytes));
        let text: Arc<str> = pattern.into();
        let entry = Arc::new(CachedRegex { regex, bytes, used: AtomicBool::new(false) });
        self.entries.insert(text.clone(), entry.clone());
        self.clock.push_back(text);
        self.bytes += bytes;
        entry
    }

    /// Evicts entries that were not used since the hand last passed, until `bytes_max` are left.
    fn evict(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max {
            let Some(text) = self.clock.pop_front() else { return };
            let Some(entry) = self.entries.get(&text) else { continue };
            if entry.used.swap(false, Ordering::Relaxed) {
                self.clock.push_back(text);
            } else {
                self.bytes -= entry.bytes;
                self.entries.remove(&text);
            }
        }
    }
}

/// Estimates the memory of an entry. Repeats make a compiled pattern larger than its text suggests.
fn entry_bytes(pattern: &str) -> usize {
    let translated = crate::dialect::translate(pattern);
    let states = crate::validate::parse(pattern, &translated).unwrap_or_default();
    let states = usize::try_from(states).unwrap_or(usize::MAX);
    let bytes = pattern.len().saturating_mul(ENTRY_BYTES_PER_BYTE).max(states.saturating_mul(64));
    ENTRY_BYTES + bytes.min(COMPILED_BYTES_MAX)
}

fn process_cache() -> MutexGuard<'static, RegexCache> {
    static CACHE: LazyLock<Mutex<RegexCache>> =
        LazyLock::new(|| Mutex::new(RegexCache::new(CACHE_BYTES_MAX)));
    CACHE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the estimated memory of the process-wide cache, for metrics.
pub fn cached_bytes() -> usize {
    process_cache().bytes()
}

/// Returns a compiled pattern from the process-wide cache.
pub fn cached(pattern: &str) -> Result<Arc<CachedRegex>, String> {
    if let Some(found) = process_cache().get(pattern) {
        return Ok(found);
    }
    // Compiled outside the lock.
    let regex = compile(pattern, COMPILED_BYTES_MAX)?;
    Ok(process_cache().insert(pattern, regex))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(cache: &mut RegexCache, pattern: &str) -> Arc<CachedRegex> {
        let regex = compile(pattern, COMPILED_BYTES_MAX).unwrap();
        cache.insert(pattern, regex)
    }

    #[test]
    fn cache_stays_within_its_budget_and_frees_evicted_patterns() {
        let mut cache = RegexCache::new(1024 * 1024);
        let first = Arc::downgrade(&fill(&mut cache, "^first$"));
        for number in 0..500 {
            fill(&mut cache, &format!("^{number}$"));
            assert!(cache.bytes() <= 1024 * 1024);
        }
        assert!(first.upgrade().is_none());
        assert_eq!(cache.entries.len(), cache.clock.len());
        assert!(cache.entries.len() < 60, "{}", cache.entries.len());
    }

    #[test]
    fn recently_used_patterns_survive_eviction() {
        let mut cache = RegexCache::new(1024 * 1024);
        let hot = Arc::downgrade(&fill(&mut cache, "^hot$"));
        for number in 0..500 {
            assert!(hot.upgrade().unwrap().is_match("hot"));
            fill(&mut cache, &format!("^{number}$"));
        }
        assert!(hot.upgrade().is_some());
    }

    #[test]
    fn equal_patterns_share_one_compiled_regex() {
        let (one, another) = (cached("^shared$").unwrap(), cached("^shared$").unwrap());
        assert!(Arc::ptr_eq(&one, &another));
        assert!(cached("(").is_err());
    }
}
