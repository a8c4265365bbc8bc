//! The controllers of workloads and the scheduler, on a server in process with a stand-in for a kubelet.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod deployments;
mod fixture;
mod replica_sets;
mod scheduler;
mod services;
#[path = "../support/mod.rs"]
mod support;
