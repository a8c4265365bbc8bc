//! The controllers of workloads and the scheduler, on a server in process with a stand-in for a kubelet.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod autoscaling;
mod deployments;
mod disruption;
mod fixture;
mod jobs;
mod nodes;
mod replica_sets;
mod scheduler;
mod services;
mod stateful_sets;
#[path = "../support/mod.rs"]
mod support;
