//! A cache of token authentication.
//!
//! Keys are HMACs of tokens under a random key: no token is kept, and nobody can choose keys that collide. Concurrent
//! requests with the same token share one lookup. Memory is bounded; the least recently used entry goes first.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use aws_lc_rs::hmac;
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};

use super::metrics::AuthenticationMetrics;
use crate::{
    authenticator::{Outcome, TokenAuthenticator},
    lookup::ObjectChanges,
    time::system_clock,
};

const STRIPES: usize = 32;
/// Entries of a stripe. As in Kubernetes, there are twice as many as a cluster of the largest size needs.
const STRIPE_ENTRIES_MAX: usize = 1024;

type Key = [u8; 32];

/// Lifetimes of cached outcomes. Zero is not to cache.
#[derive(Clone, Copy, Debug)]
pub struct Lifetimes {
    /// Of users.
    pub success: Duration,
    /// Of tokens that no authenticator knows, or that are not valid.
    pub failure: Duration,
    /// True to cache errors as failures.
    pub errors: bool,
}

/// Caches the outcomes of an authenticator.
pub struct Cached<A> {
    authenticator: Arc<A>,
    lifetimes: Lifetimes,
    changes: Option<Arc<ObjectChanges>>,
    metrics: Option<AuthenticationMetrics>,
    key: hmac::Key,
    stripes: Vec<Mutex<Stripe>>,
}

#[derive(Default)]
struct Stripe {
    entries: HashMap<Key, Entry>,
    in_flight: HashMap<Key, Shared<BoxFuture<'static, Outcome>>>,
    /// Counts uses, for the order of eviction.
    clock: u64,
}

struct Entry {
    outcome: Outcome,
    until: Instant,
    used: u64,
}

impl<A: fmt::Debug> fmt::Debug for Cached<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cached").field("authenticator", &self.authenticator).finish_non_exhaustive()
    }
}

impl<A: TokenAuthenticator + 'static> Cached<A> {
    /// Returns a cache before an authenticator. Entries that depend on objects are void once these change.
    pub fn new(authenticator: A, lifetimes: Lifetimes, changes: Option<Arc<ObjectChanges>>) -> Self {
        Self {
            authenticator: Arc::new(authenticator),
            lifetimes,
            changes,
            metrics: None,
            key: hmac::Key::new(hmac::HMAC_SHA256, &rand::random::<[u8; 32]>()),
            stripes: std::iter::repeat_with(Mutex::default).take(STRIPES).collect(),
        }
    }

    /// Counts hits and misses.
    #[must_use]
    pub fn with_metrics(mut self, metrics: AuthenticationMetrics) -> Self {
        self.metrics = Some(metrics);
        self
    }

    fn count(&self, hit: bool) {
        if let Some(metrics) = &self.metrics {
            metrics.record_cache(hit);
        }
    }

    fn key(&self, token: &str, audiences: &[String]) -> Key {
        let mut context = hmac::Context::with_key(&self.key);
        // With their lengths: the end of one text is not taken for the beginning of the next.
        for text in std::iter::once(token).chain(audiences.iter().map(String::as_str)) {
            context.update(&(text.len() as u64).to_be_bytes());
            context.update(text.as_bytes());
        }
        let mut key = [0; 32];
        key.copy_from_slice(context.sign().as_ref());
        key
    }

    fn stripe(&self, key: &Key) -> &Mutex<Stripe> {
        // There are fewer than 256 stripes, and the index is below their number.
        &self.stripes[usize::from(key[0]) % STRIPES]
    }

    fn is_valid(&self, entry: &Entry, now: Instant) -> bool {
        let Ok(Some(authenticated)) = &entry.outcome else { return now < entry.until };
        now < entry.until
            && self.is_current(&entry.outcome)
            && authenticated.expires.is_none_or(|expires| system_clock() <= expires)
    }

    /// Returns true unless an object has changed that the outcome depends on.
    fn is_current(&self, outcome: &Outcome) -> bool {
        let (Ok(Some(authenticated)), Some(changes)) = (outcome, &self.changes) else { return true };
        authenticated.depends_on.iter().all(|observation| changes.is_current(observation))
    }

    fn lifetime(&self, outcome: &Outcome) -> Duration {
        match outcome {
            Ok(Some(_)) => self.lifetimes.success,
            Ok(None) => self.lifetimes.failure,
            Err(_) if self.lifetimes.errors => self.lifetimes.failure,
            Err(_) => Duration::ZERO,
        }
    }
}

#[async_trait]
impl<A: TokenAuthenticator + 'static> TokenAuthenticator for Cached<A> {
    async fn authenticate(&self, token: &str, audiences: &[String]) -> Outcome {
        let key = self.key(token, audiences);
        let lookup = {
            let mut stripe = lock(self.stripe(&key));
            stripe.clock += 1;
            let clock = stripe.clock;
            let now = Instant::now();
            match stripe.entries.get_mut(&key) {
                Some(entry) if self.is_valid(entry, now) => {
                    entry.used = clock;
                    self.count(true);
                    return entry.outcome.clone();
                }
                Some(_) => drop(stripe.entries.remove(&key)),
                None => {}
            }
            self.count(false);
            let start = || {
                let authenticator = self.authenticator.clone();
                let (token, audiences) = (token.to_owned(), audiences.to_vec());
                async move { authenticator.authenticate(&token, &audiences).await }.boxed().shared()
            };
            stripe.in_flight.entry(key).or_insert_with(start).clone()
        };
        let mut guard = InFlight { stripe: self.stripe(&key), key: Some(key) };
        let outcome = lookup.await;
        let lifetime = self.lifetime(&outcome);
        {
            let mut stripe = lock(self.stripe(&key));
            guard.key = None;
            // The first of those that waited stores the outcome.
            if stripe.in_flight.remove(&key).is_some() && !lifetime.is_zero() {
                let now = Instant::now();
                if stripe.entries.len() >= STRIPE_ENTRIES_MAX {
                    stripe.evict(now);
                }
                let used = stripe.clock;
                stripe.entries.insert(key, Entry { outcome: outcome.clone(), until: now + lifetime, used });
            }
        }
        // The lookup may be older than a change that this request comes after: a token that was revoked meanwhile.
        if self.is_current(&outcome) {
            return outcome;
        }
        self.authenticator.authenticate(token, audiences).await
    }
}

impl Stripe {
    /// Removes outdated entries, and if there are none the half that was not used for longest: so that not every
    /// insertion looks for one to remove.
    fn evict(&mut self, now: Instant) {
        self.entries.retain(|_, entry| now < entry.until);
        if self.entries.len() < STRIPE_ENTRIES_MAX {
            return;
        }
        let mut used: Vec<u64> = self.entries.values().map(|entry| entry.used).collect();
        let middle = used.len() / 2;
        let (_, median, _) = used.select_nth_unstable(middle);
        let median = *median;
        self.entries.retain(|_, entry| entry.used > median);
    }
}

/// Forgets a lookup whose last waiting request was dropped, which nobody would drive to its end.
struct InFlight<'a> {
    stripe: &'a Mutex<Stripe>,
    key: Option<Key>,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            // Others that wait hold clones of the lookup; one who comes later starts another.
            lock(self.stripe).in_flight.remove(&key);
        }
    }
}

fn lock(stripe: &Mutex<Stripe>) -> std::sync::MutexGuard<'_, Stripe> {
    stripe.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::{
        User,
        authenticator::{Authenticated, AuthenticationError},
    };

    #[derive(Debug, Default)]
    struct Counting {
        asked: Arc<AtomicUsize>,
        changes: Arc<ObjectChanges>,
        delay: Duration,
    }

    #[async_trait]
    impl TokenAuthenticator for Counting {
        async fn authenticate(&self, token: &str, _audiences: &[String]) -> Outcome {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let observed = self.changes.observe(token.as_bytes());
            if !self.delay.is_zero() {
                tokio::time::sleep(self.delay).await;
            }
            match token {
                "bad" => Err(AuthenticationError::invalid("bad")),
                "unknown" => Ok(None),
                _ => {
                    let mut found = Authenticated::user(User::authenticated(token, []));
                    found.depends_on.push(observed);
                    found.expires = (token == "old").then_some(1);
                    Ok(Some(found))
                }
            }
        }
    }

    fn cached(
        failure: Duration,
        delay: Duration,
    ) -> (Cached<Counting>, Arc<AtomicUsize>, Arc<ObjectChanges>) {
        let inner = Counting { delay, ..Counting::default() };
        let (asked, changes) = (inner.asked.clone(), inner.changes.clone());
        let lifetimes = Lifetimes { success: Duration::from_secs(60), failure, errors: false };
        (Cached::new(inner, lifetimes, Some(changes.clone())), asked, changes)
    }

    #[tokio::test]
    async fn users_are_cached_until_an_object_they_depend_on_changes() {
        let (cache, asked, changes) = cached(Duration::ZERO, Duration::ZERO);
        for _ in 0..3 {
            assert!(cache.authenticate("a", &[]).await.unwrap().is_some());
        }
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        changes.record(b"a");
        assert!(cache.authenticate("a", &[]).await.unwrap().is_some());
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        // Other audiences are another question.
        assert!(cache.authenticate("a", &["x".to_owned()]).await.unwrap().is_some());
        assert_eq!(asked.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn expired_users_and_errors_are_not_cached() {
        let (cache, asked, _) = cached(Duration::from_secs(60), Duration::ZERO);
        for token in ["old", "bad"] {
            asked.store(0, Ordering::SeqCst);
            for _ in 0..2 {
                let _ = cache.authenticate(token, &[]).await;
            }
            assert_eq!(asked.load(Ordering::SeqCst), 2, "{token}");
        }
        asked.store(0, Ordering::SeqCst);
        for _ in 0..2 {
            assert!(cache.authenticate("unknown", &[]).await.unwrap().is_none());
        }
        assert_eq!(asked.load(Ordering::SeqCst), 1, "an unknown token is, for the lifetime of failures");
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_requests_share_one_lookup() {
        let (cache, asked, _) = cached(Duration::ZERO, Duration::from_secs(5));
        let ask = |_| cache.authenticate("bad", &[]);
        let all = futures_util::future::join_all((0..50).map(ask)).await;
        assert!(all.iter().all(Result::is_err));
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        // A lookup that everybody gave up leaves nothing behind.
        let abandoned = tokio::time::timeout(Duration::from_secs(1), cache.authenticate("a", &[])).await;
        assert!(abandoned.is_err());
        assert!(cache.authenticate("a", &[]).await.unwrap().is_some());
        assert!(cache.stripes.iter().all(|stripe| lock(stripe).in_flight.is_empty()));
    }

    #[tokio::test(start_paused = true)]
    async fn lookup_from_before_a_change_does_not_answer_a_request_from_after_it() {
        let (cache, asked, changes) = cached(Duration::ZERO, Duration::from_secs(5));
        let later = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            changes.record(b"a");
            let found = cache.authenticate("a", &[]).await;
            (found, asked.load(Ordering::SeqCst))
        };
        let (_, (found, lookups)) = futures_util::future::join(cache.authenticate("a", &[]), later).await;
        assert!(found.unwrap().is_some() && lookups > 1, "it was looked up again");
    }

    #[tokio::test]
    async fn number_of_entries_is_bounded() {
        let (cache, _, _) = cached(Duration::ZERO, Duration::ZERO);
        for number in 0..2 * STRIPES * STRIPE_ENTRIES_MAX {
            let _ = cache.authenticate(&number.to_string(), &[]).await;
        }
        assert!(cache.stripes.iter().all(|stripe| lock(stripe).entries.len() <= STRIPE_ENTRIES_MAX));
    }
}
