//! The messages and services, as build.rs generates them from `proto/`.
#![allow(
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    clippy::all,
    reason = "generated code, not ours to tidy"
)]

/// Keys, values and events.
pub mod mvccpb {
    tonic::include_proto!("mvccpb");
}

/// Permissions.
pub mod authpb {
    tonic::include_proto!("authpb");
}

/// Requests, responses and services.
pub mod etcdserverpb {
    tonic::include_proto!("etcdserverpb");
}
