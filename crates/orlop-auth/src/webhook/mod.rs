//! Clients of webhooks and of token issuers: JSON over HTTPS, bounded in time and bytes.
//!
//! [`Transport`] opens connections and keeps a few of them. [`WebhookClient`] posts to the server that a
//! kubeconfig file names, with its credentials, and retries as Kubernetes does.
//!
//! ```no_run
//! # async fn run() -> Result<(), orlop_auth::webhook::WebhookError> {
//! use orlop_auth::webhook::{Backoff, WebhookClient};
//!
//! let webhook = WebhookClient::from_kubeconfig("webhook.kubeconfig".into(), Backoff::default())?;
//! let answer = webhook.post(&serde_json::json!({"kind": "TokenReview"})).await?;
//! # drop(answer);
//! # Ok(())
//! # }
//! ```
//!
//! Redirects are not followed: an answer that is not 2xx is an error. A webhook that could send its caller
//! elsewhere could also send the credentials there.

mod bundle_verifier;
mod ca_chain;
mod client;
mod client_config;
mod handshake;
mod transport;

pub use client::{Attempt, Backoff, WebhookClient, WebhookError};
pub use client_config::{ClientConfig, ClientConfigError};
pub use transport::{
    Answer, AnswerBody, Failure, Origin, Scheme, Transport, Trust, authority, client_tls, dial_tls,
};
