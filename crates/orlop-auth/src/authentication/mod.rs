//! Authenticators, a file each, and the one of whole requests.
//!
//! A request is tried in Kubernetes' order: front proxy, client certificate, bearer token, anonymous. A credential
//! that is presented and not valid is never taken for anonymous.

mod anonymous;
mod bootstrap_token;
mod cache;
mod client_certificate;
mod front_proxy;
mod metrics;
pub mod oidc;
mod request;
mod service_account;
mod token_review;

pub use anonymous::Anonymous;
pub use bootstrap_token::BootstrapTokens;
pub use cache::{Cached, Lifetimes};
pub use client_certificate::{Peer, PeerCertificate};
pub use front_proxy::{FrontProxy, FrontProxyError, HeaderNames};
pub use metrics::AuthenticationMetrics;
pub use request::{PresentedCredentials, RequestAuthenticator};
pub use service_account::{LegacyServiceAccountTokens, ServiceAccountTokens, UseTracker};
pub use token_review::{TokenReviewVersion, TokenReviewWebhook};
