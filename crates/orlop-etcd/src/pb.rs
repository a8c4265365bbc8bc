//! The messages and services, as `cargo xtask generate protobuf` makes them from `proto/`.
#![allow(
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    clippy::all,
    reason = "generated code, not ours to tidy"
)]

/// Keys, values and events.
pub mod mvccpb {
    include!("generated/mvccpb.rs");
}

/// Permissions.
pub mod authpb {
    include!("generated/authpb.rs");
}

/// Requests, responses and services.
pub mod etcdserverpb {
    include!("generated/etcdserverpb.rs");
}
