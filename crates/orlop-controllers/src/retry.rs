//! Trying again, less and less often.

use std::{future::Future, time::Duration};

use tokio::time::sleep;

const FIRST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(10);

/// Waits that grow, until something works.
#[derive(Debug, Default)]
pub(crate) struct Backoff(u32);

impl Backoff {
    /// Waits; longer than the last time.
    pub(crate) async fn wait(&mut self) {
        let wait = FIRST.saturating_mul(1 << self.0.min(16)).min(LONGEST);
        self.0 += 1;
        sleep(wait).await;
    }

    /// Something worked.
    pub(crate) fn reset(&mut self) {
        self.0 = 0;
    }
}

/// Calls `work` until it succeeds.
pub(crate) async fn until_done<T, F: Future<Output = kube::Result<T>>>(
    what: &str,
    work: impl Fn() -> F,
) -> T {
    let mut backoff = Backoff::default();
    loop {
        match work().await {
            Ok(done) => return done,
            Err(error) => {
                tracing::debug!(%error, what, "will be tried again");
                backoff.wait().await;
            }
        }
    }
}

/// Whether an answer says that something is not there.
pub(crate) fn is_missing(error: &kube::Error) -> bool {
    code(error) == Some(404)
}

/// Whether an answer says that somebody else was faster.
pub(crate) fn is_conflict(error: &kube::Error) -> bool {
    code(error) == Some(409)
}

/// Whether an answer says that this one may not ask.
pub(crate) fn is_forbidden(error: &kube::Error) -> bool {
    code(error) == Some(403)
}

/// Whether an answer says that an object is not there, and not that its kind is served no longer.
pub(crate) fn is_missing_object(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404
        && status.details.as_ref().is_some_and(|details| !details.name.is_empty()))
}

/// Whether an answer says that history is gone.
pub(crate) fn is_expired(error: &kube::Error) -> bool {
    code(error) == Some(410)
}

fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}
