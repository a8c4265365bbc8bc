//! Custom resources through the whole server, in one process.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod changes;
mod corpus;
mod definitions;
#[path = "../support/hook.rs"]
mod hook;
mod many;
mod objects;
mod server;
mod shared_database;
mod values;
mod versions;
mod webhook;
