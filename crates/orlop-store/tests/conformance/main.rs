//! The conformance suite: what every engine must do.
//!
//! A behaviour is a function that is given a [`Database`](database::Database); the macros below make one
//! test of it for each engine. Where an engine is shared, `store` and `peer` are two stores on one database
//! connected only through it; elsewhere they are the same store.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[macro_use]
mod database;
mod shorthand;

mod compaction;
mod damage;
mod disk;
mod history;
mod index;
mod leases;
mod limits;
mod processes;
mod reads;
mod reopening;
mod revisions;
mod slow_watchers;
mod snapshots;
mod transactions;
mod watches;
