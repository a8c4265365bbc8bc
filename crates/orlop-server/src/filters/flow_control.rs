//! Flow control: bounds the requests that execute at once. Queueing by priority and fairness goes here.

use std::sync::Arc;

use orlop_api::status::Status;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::request::Attributes;

/// Requests of clients that execute at once. Long-running requests hold no permit while they stream.
const CLIENT_REQUESTS: usize = 600;
/// Requests of controllers in this process that execute at once. They have permits of their own: clients
/// cannot starve them, nor they clients.
const IN_PROCESS_REQUESTS: usize = 200;

/// Origin of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A connection.
    Client,
    /// The process itself.
    InProcess,
}

/// Permits to execute requests.
#[derive(Clone, Debug)]
pub(crate) struct FlowControl {
    clients: Arc<Semaphore>,
    in_process: Arc<Semaphore>,
}

impl Default for FlowControl {
    fn default() -> Self {
        Self {
            clients: Arc::new(Semaphore::new(CLIENT_REQUESTS)),
            in_process: Arc::new(Semaphore::new(IN_PROCESS_REQUESTS)),
        }
    }
}

impl FlowControl {
    /// Waits for a permit, up to the request's deadline.
    pub(crate) async fn acquire(
        &self,
        _attributes: &Attributes,
        origin: Origin,
    ) -> Result<OwnedSemaphorePermit, Status> {
        let permits = match origin {
            Origin::Client => &self.clients,
            Origin::InProcess => &self.in_process,
        };
        let permit = permits.clone().acquire_owned().await;
        permit.map_err(|_| Status::service_unavailable("apiserver is shutting down"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn clients_do_not_take_permits_of_in_process_requests() {
        let (control, attributes) = (FlowControl::default(), Attributes::default());
        let mut held = Vec::new();
        for _ in 0..CLIENT_REQUESTS {
            held.push(control.acquire(&attributes, Origin::Client).await.unwrap());
        }
        assert!(control.acquire(&attributes, Origin::Client).now_or_never().is_none());
        assert!(control.acquire(&attributes, Origin::InProcess).now_or_never().unwrap().is_ok());
        held.pop();
        assert!(control.acquire(&attributes, Origin::Client).now_or_never().unwrap().is_ok());
    }
}
