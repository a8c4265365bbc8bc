//! Authenticators against TLS servers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod server;
mod webhook_client;
