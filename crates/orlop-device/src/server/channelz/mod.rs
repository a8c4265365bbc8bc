//! channelz: the server, its listeners and its connections, with counts of calls and messages.
//!
//! `observe` counts calls for channelz and for metrics alike, so both always agree.

mod registry;
mod service;

pub(crate) use self::{
    registry::{Channelz, OpenSocket, Security},
    service::ChannelzService,
};

/// Generated messages and service.
#[allow(clippy::all, unreachable_pub, missing_debug_implementations, reason = "generated")]
pub(crate) mod proto {
    include!("generated/grpc.channelz.v1.rs");
    pub(crate) const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/channelz.bin");
}
