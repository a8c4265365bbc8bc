//! Token buckets, so that many objects at once do not throttle themselves.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

use super::service::Service;

/// Account, region, service and class of operations.
type Key = (String, String, &'static str, &'static str);

/// Token buckets of all accounts and regions. They are as many as accounts times classes, which is few.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    buckets: Mutex<HashMap<Key, Arc<Bucket>>>,
    /// Factor on AWS' rates; 0 is no limit at all.
    scale: f64,
}

/// Urgency of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Priority {
    /// A user waits for the outcome: a create, an update, a delete.
    #[default]
    Normal,
    /// A resync of an object that is synced.
    Background,
}

/// A token bucket. Its waiters form a queue, and only the first of them waits for a token: a process that was paused
/// finds no more tokens than the bucket holds.
#[derive(Debug)]
struct Bucket {
    /// The time at which the bucket will be full (the generic cell rate algorithm).
    full_at: tokio::sync::Mutex<Instant>,
    /// Held by the one background call that may stand in the queue, so that others overtake the rest.
    background: tokio::sync::Mutex<()>,
}

impl Limits {
    pub(crate) fn new(scale: f64) -> Self {
        Self { buckets: Mutex::default(), scale }
    }

    /// Waits for a token. Callers of one priority are served in the order in which they came.
    pub(crate) async fn acquire(
        &self,
        account: &str,
        region: &str,
        service: &Service,
        operation: &'static str,
        priority: Priority,
    ) {
        if self.scale <= 0.0 {
            return;
        }
        let limit = service.limit(operation);
        let region = if service.global { "" } else { region };
        let bucket = self.bucket((account.to_owned(), region.to_owned(), service.name, limit.class));
        let _turn = match priority {
            Priority::Normal => None,
            Priority::Background => Some(bucket.background.lock().await),
        };
        bucket.take(limit.interval.div_f64(self.scale), limit.burst(self.scale)).await;
    }

    fn bucket(&self, key: Key) -> Arc<Bucket> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            let (full_at, background) =
                (tokio::sync::Mutex::new(Instant::now()), tokio::sync::Mutex::new(()));
            Arc::new(Bucket { full_at, background })
        };
        buckets.entry(key).or_insert_with(new).clone()
    }
}

impl Bucket {
    /// Takes a token, of which there is one more every `interval`, up to `burst`.
    async fn take(&self, interval: Duration, burst: u32) {
        let held: Duration = interval * burst.saturating_sub(1);
        let mut full_at = self.full_at.lock().await;
        loop {
            let now = Instant::now();
            let full = (*full_at).max(now);
            match full.checked_sub(held).filter(|available| *available > now) {
                Some(available) => sleep_until(available).await,
                None => {
                    *full_at = full + interval;
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::service::{ACM, APIGATEWAYV2, LAMBDA, ROUTE53};
    use super::*;

    /// Calls in the busiest second of so many at once.
    async fn busiest_second(limits: &Limits, service: &'static Service, operation: &'static str) -> usize {
        let mut times = Vec::new();
        for _ in 0..300 {
            limits.acquire("1", "eu-west-1", service, operation, Priority::Normal).await;
            times.push(Instant::now());
        }
        let within = |first: &Instant| {
            times.iter().filter(|time| *time >= first && **time - *first < Duration::from_secs(1)).count()
        };
        times.iter().map(within).max().unwrap_or_default()
    }

    #[tokio::test(start_paused = true)]
    async fn no_second_has_more_calls_than_aws_documents() {
        for (service, operation, limit) in [
            (&LAMBDA, "CreateFunction", 15),
            (&LAMBDA, "GetFunction", 100),
            (&LAMBDA, "GetPolicy", 15),
            (&ACM, "RequestCertificate", 5),
            (&ACM, "DescribeCertificate", 10),
            (&ACM, "ListCertificates", 1),
            (&ROUTE53, "ChangeResourceRecordSets", 5),
            // 10 a second and a burst of 40.
            (&APIGATEWAYV2, "CreateApi", 40),
        ] {
            for scale in [1, 3] {
                let busiest = busiest_second(&Limits::new(f64::from(scale)), service, operation).await;
                let limit = limit * scale as usize;
                assert!(busiest <= limit, "{operation} x{scale}: {busiest} of {limit}");
                assert!(busiest * 2 > limit, "{operation} x{scale}: only {busiest} of {limit}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_beyond_the_burst_are_at_the_rate() {
        let limits = Limits::new(1.0);
        let start = Instant::now();
        for _ in 0..72 {
            limits.acquire("1", "eu-west-1", &ROUTE53, "ListHostedZones", Priority::Normal).await;
        }
        // 2 at once, 70 more at 3.5 a second.
        let took = start.elapsed().as_secs_f64();
        assert!((19.9..20.1).contains(&took), "{took}");
    }

    /// Reservations for a time to come were all due at once after a pause of the process.
    #[tokio::test(start_paused = true)]
    async fn paused_process_has_no_more_than_a_burst_to_catch_up() {
        let limits = Arc::new(Limits::new(1.0));
        let times = Arc::new(Mutex::new(Vec::new()));
        for _ in 0..100 {
            let (limits, times) = (limits.clone(), times.clone());
            tokio::spawn(async move {
                limits.acquire("1", "eu-west-1", &LAMBDA, "CreateFunction", Priority::Normal).await;
                times.lock().expect("times").push(Instant::now());
            });
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        let before = times.lock().expect("times").len();
        tokio::time::advance(Duration::from_secs(5)).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        let after = times.lock().expect("times").len();
        assert_eq!(before, 5);
        assert!((1..=6).contains(&(after - before)), "{} at once after the pause", after - before);
    }

    #[tokio::test(start_paused = true)]
    async fn creates_overtake_the_reads_of_a_resync() {
        let limits = Arc::new(Limits::new(1.0));
        let order = Arc::new(Mutex::new(Vec::new()));
        let call = |priority: Priority| {
            let (limits, order) = (limits.clone(), order.clone());
            tokio::spawn(async move {
                limits.acquire("1", "eu-west-1", &ROUTE53, "ListResourceRecordSets", priority).await;
                order.lock().expect("the order").push(priority);
            })
        };
        let mut calls: Vec<_> = (0..20).map(|_| call(Priority::Background)).collect();
        tokio::time::sleep(Duration::from_millis(1)).await;
        calls.extend((0..5).map(|_| call(Priority::Normal)));
        for call in calls {
            call.await.expect("a call");
        }
        let order = order.lock().expect("the order").clone();
        // Two had a token at once, one stood in the queue.
        let last = order.iter().rposition(|priority| *priority == Priority::Normal).expect("a create");
        assert_eq!(last, 2 + 1 + 5 - 1, "{order:?}");
        assert_eq!(order.len(), 25);
    }

    #[tokio::test(start_paused = true)]
    async fn services_accounts_and_classes_do_not_share() {
        let limits = Limits::new(1.0);
        let start = Instant::now();
        for _ in 0..5 {
            for (account, region, operation) in [
                ("1", "a", "CreateFunction"),
                ("2", "a", "CreateFunction"),
                ("1", "b", "CreateFunction"),
                ("1", "a", "GetFunction"),
            ] {
                limits.acquire(account, region, &LAMBDA, operation, Priority::Normal).await;
            }
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}
