//! The messages of package `nvidia.nvsentinel.v1alpha1` and their gRPC client, generated from the `.proto`
//! files of `orlop-device`.

#![allow(missing_docs, clippy::all, unreachable_pub, reason = "generated")]

include!("generated/nvidia.nvsentinel.v1alpha1.rs");

/// The compiled `.proto` files with everything they import, for reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/device.bin");

/// The name every object of this API is found by in its group.
pub const API_VERSION: &str = "device.nvidia.com/v1alpha1";
