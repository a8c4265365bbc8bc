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

/// Locks.
pub mod v3lockpb {
    include!("generated/v3lockpb.rs");
}

/// Elections.
pub mod v3electionpb {
    include!("generated/v3electionpb.rs");
}

/// Requests, responses and services.
pub mod etcdserverpb {
    include!("generated/etcdserverpb.rs");
}
