//! APIServices and extension API servers: registration, availability, the proxy, merged documents, hostile servers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod documents;
mod extension;
mod hostile;
mod proxy;
mod registration;
#[path = "../support/mod.rs"]
mod support;
