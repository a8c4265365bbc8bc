//! Authenticators and authorizers against TLS servers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod server;
mod webhook_authorizer;
mod webhook_client;
