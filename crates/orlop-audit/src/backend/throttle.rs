//! A token bucket.

use std::time::Duration;

use tokio::time::Instant;

use super::Throttle;

/// Tokens that refill at a rate, up to a burst.
#[derive(Debug)]
pub(super) struct TokenBucket {
    throttle: Throttle,
    tokens: f64,
    filled: Instant,
}

impl TokenBucket {
    pub(super) fn new(throttle: Throttle) -> Self {
        Self { throttle, tokens: f64::from(throttle.burst), filled: Instant::now() }
    }

    /// Takes a token; waits until there is one.
    pub(super) async fn take(&mut self) {
        tokio::time::sleep(self.reserve()).await;
    }

    /// Takes a token. Returns the time until there is one.
    pub(super) fn reserve(&mut self) -> Duration {
        let now = Instant::now();
        let refilled = now.duration_since(self.filled).as_secs_f64() * self.throttle.qps;
        self.tokens = (self.tokens + refilled).min(f64::from(self.throttle.burst));
        self.filled = now;
        self.tokens -= 1.0;
        let seconds = (-self.tokens).max(0.0) / self.throttle.qps.max(1e-6);
        Duration::from_secs_f64(seconds.min(3600.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn burst_is_free_and_the_rest_waits() {
        let mut bucket = TokenBucket::new(Throttle { qps: 10.0, burst: 2 });
        let started = Instant::now();
        for _ in 0..2 {
            bucket.take().await;
        }
        assert_eq!(started.elapsed().as_millis(), 0);
        for _ in 0..10 {
            bucket.take().await;
        }
        let waited = started.elapsed().as_millis();
        assert!((1000..=1020).contains(&waited), "{waited}");
    }
}
