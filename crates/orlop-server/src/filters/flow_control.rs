//! Flow control: where requests will queue by priority and fairness. So far a bound on how many run at once.

use std::sync::Arc;

use orlop_api::status::Status;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Requests that run at once, those that stay open not counted.
const AT_ONCE: usize = 600;

/// Places for requests.
#[derive(Clone, Debug)]
pub(crate) struct FlowControl(Arc<Semaphore>);

impl Default for FlowControl {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

impl FlowControl {
    /// A place, given back when dropped. Waits until the request's deadline ends the wait.
    pub(crate) async fn place(&self) -> Result<OwnedSemaphorePermit, Status> {
        let place = self.0.clone().acquire_owned().await;
        place.map_err(|_| Status::service_unavailable("apiserver is shutting down"))
    }
}
