//! Exponential back-off: of a queued item that failed, or of a loop that retries.

use std::{future::Future, time::Duration};

use tokio::time::sleep;

const DELAY_MIN: Duration = Duration::from_millis(20);
/// Longest delay of what keeps failing.
pub(crate) const DELAY_MAX: Duration = Duration::from_secs(10);

/// Returns the delay after a number of consecutive failures.
pub(crate) fn delay(failures: u32) -> Duration {
    DELAY_MIN.saturating_mul(1 << failures.min(16)).min(DELAY_MAX)
}

/// The back-off of one loop.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Sleeps twice as long as the last time.
    pub(crate) async fn wait(&mut self) {
        sleep(delay(self.failures)).await;
        self.failures += 1;
    }

    /// Starts over after a success.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

/// Calls `attempt` until it succeeds.
pub(crate) async fn retry<T, F: Future<Output = orlop_client::Result<T>>>(
    purpose: &str,
    attempt: impl Fn() -> F,
) -> T {
    let mut backoff = Backoff::default();
    loop {
        match attempt().await {
            Ok(value) => return value,
            Err(error) => {
                tracing::debug!(%error, purpose, "request failed; retrying with back-off");
                backoff.wait().await;
            }
        }
    }
}
