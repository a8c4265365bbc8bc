//! Authenticators and authorizers against TLS servers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod oidc;
mod server;
mod service_accounts;
mod token_review;
mod webhook_authorizer;
mod webhook_client;
