//! What every engine must do, one sentence a behaviour.
//!
//! A behaviour is a function that is given a [`Database`](database::Database); the macros below make one
//! test of it for each engine. Where an engine is shared, `store` and `peer` are two stores on one database
//! that know of each other only through it; elsewhere they are one and the same.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[macro_use]
mod database;
mod speech;

mod compaction;
mod damage;
mod disk;
mod index;
mod leases;
mod limits;
mod past;
mod processes;
mod reads;
mod reopening;
mod revisions;
mod slow_watchers;
mod snapshots;
mod transactions;
mod watches;
