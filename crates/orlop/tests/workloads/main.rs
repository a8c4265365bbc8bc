//! Pods that run: kubectl, unmodified, against `orlop serve --node`.

#![allow(clippy::panic, reason = "a test fails by panicking")]

mod cluster;
mod commands;
mod containers;
mod custom_metrics;
mod ends;
mod joined;
mod limits;
mod metrics;
mod pods;
mod postgresql;
mod probes;
mod restarts;
mod rotation;
mod sandboxes;
mod services;
mod static_pods;
mod streams;
#[path = "../support/mod.rs"]
mod support;
mod unprivileged;
mod volumes;
