//! `orlop etcd`, the program, with Debian's etcdctl and etcd.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../../orlop-etcd/tests/support/mod.rs"]
mod support;

mod copying;
mod etcdctl;
mod grpc;
mod histories;
mod process;
mod quota;
mod restarts;
mod secure;
mod snapshots;
