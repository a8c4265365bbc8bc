//! Device kinds.
//!
//! A kind is one file: its service, its key prefix and its validation. Everything else (metadata, optimistic locking,
//! patches, watches, selectors) is implemented once, in `verbs`. Another crate registers a kind the same way: see
//! `examples/nic`.

mod gpu;

pub use gpu::GPU;
use orlop_api::field_error::FieldError;
use serde_json::Value;

/// Every kind that `orlop device serve` serves.
pub static ALL: &[&Kind] = &[&GPU];

/// A device kind.
#[derive(Debug)]
pub struct Kind {
    /// The API group, e.g. `device.nvidia.com`.
    pub group: &'static str,
    /// The API version, e.g. `v1alpha1`.
    pub version: &'static str,
    /// The kind, e.g. `GPU`.
    pub kind: &'static str,
    /// The resource: the last part of the prefix that objects are stored under, e.g. `gpus`.
    pub plural: &'static str,
    /// The full name of the gRPC service, e.g. `nvidia.nvsentinel.v1alpha1.GpuService`.
    pub service: &'static str,
    /// The noun in method names: `Gpu` in `GetGpu`, `ListGpus`, `WatchGpus`.
    pub noun: &'static str,
    /// The compiled `.proto` of the service with everything it imports.
    pub descriptors: &'static [u8],
    /// Validates spec and status. Metadata and conditions are validated for all kinds.
    pub validate: fn(object: &Value) -> Vec<FieldError>,
}

impl Kind {
    /// Returns the `apiVersion` of objects.
    pub fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// Returns the key prefix of objects.
    pub fn prefix(&self) -> String {
        format!("/registry/{}/{}/", self.group, self.plural)
    }
}
