//! Token buckets, so that many objects at once do not throttle themselves.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

use super::service::{Limit, Service};

/// Account, region, service and class of operations.
type Key = (String, String, &'static str, &'static str);

/// Buckets of all accounts and regions. They are as many as accounts times classes, which is few.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    /// The time at which each bucket would be full again (the generic cell rate algorithm).
    full_at: Mutex<HashMap<Key, Instant>>,
    /// Factor on AWS' rates; 0 is no limit at all.
    scale: f64,
}

impl Limits {
    pub(crate) fn new(scale: f64) -> Self {
        Self { full_at: Mutex::default(), scale }
    }

    /// Waits for a token. Callers are served in the order in which they came.
    pub(crate) async fn acquire(
        &self,
        account: &str,
        region: &str,
        service: &Service,
        operation: &'static str,
    ) {
        if self.scale <= 0.0 {
            return;
        }
        let limit = service.limit(operation);
        let region = if service.global { "" } else { region };
        let key = (account.to_owned(), region.to_owned(), service.name, limit.class);
        let at = self.reserve(key, limit, Instant::now());
        sleep_until(at).await;
    }

    fn reserve(&self, key: Key, limit: Limit, now: Instant) -> Instant {
        let interval = limit.interval.div_f64(self.scale);
        let burst: Duration = interval * limit.burst.saturating_sub(1);
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = full_at.entry(key).or_insert(now);
        let arrival = (*entry).max(now);
        *entry = arrival + interval;
        (arrival.checked_sub(burst).unwrap_or(now)).max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::super::service::{LAMBDA, ROUTE53};
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn calls_beyond_the_burst_keep_to_the_rate() {
        let limits = Limits::new(1.0);
        let start = Instant::now();
        for _ in 0..74 {
            limits.acquire("1", "eu-west-1", &ROUTE53, "ListHostedZones").await;
        }
        // 4 at once, 70 more at 3.5 a second.
        let took = start.elapsed().as_secs_f64();
        assert!((19.9..20.1).contains(&took), "{took}");
    }

    #[tokio::test(start_paused = true)]
    async fn services_accounts_and_classes_do_not_share() {
        let limits = Limits::new(1.0);
        let start = Instant::now();
        for _ in 0..10 {
            limits.acquire("1", "a", &LAMBDA, "CreateFunction").await;
            limits.acquire("2", "a", &LAMBDA, "CreateFunction").await;
            limits.acquire("1", "b", &LAMBDA, "CreateFunction").await;
            limits.acquire("1", "a", &LAMBDA, "GetFunction").await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}
