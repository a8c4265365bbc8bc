//! Clients of webhooks, which the server implements.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use orlop_crd::WebhookTarget;

/// Failure of a call, before or after the webhook answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallFailure {
    /// The cause, as client-go words it.
    pub message: String,
    /// HTTP status of the answer; 503 if there was none.
    pub code: u16,
}

/// A client of one webhook. Connections are kept between calls.
#[async_trait]
pub trait WebhookClient: fmt::Debug + Send + Sync {
    /// Posts JSON, and returns the body of a successful answer.
    async fn post(&self, body: Bytes, timeout: Duration) -> Result<Bytes, CallFailure>;
}

/// Makes clients of webhooks. Webhooks with the same target and CAs share one.
pub trait WebhookClients: fmt::Debug + Send + Sync {
    /// Returns the client of a webhook. `ca_bundle` is PEM; empty to trust the system's CAs.
    fn client(&self, target: &WebhookTarget, ca_bundle: &[u8]) -> Arc<dyn WebhookClient>;
}
