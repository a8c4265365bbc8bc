//! Device kinds: data, and what is special about them.
//!
//! A kind is one file that names its service, its place in the store and its validation. Everything else
//! (metadata, concurrency, patches, watches, selectors) is written once, in `verbs`. A kind from another
//! crate is registered the same way: see `examples/nic`.

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
    /// What the service's methods call one object: `Gpu` makes `GetGpu`, `ListGpus`, `WatchGpus`, …
    pub noun: &'static str,
    /// The compiled `.proto` of the service with everything it imports.
    pub descriptors: &'static [u8],
    /// Finds what is wrong with an object's spec or status. Metadata and conditions are checked already.
    pub validate: fn(object: &Value) -> Vec<FieldError>,
}

impl Kind {
    /// What objects say in `apiVersion`.
    pub fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// What all keys of the kind begin with.
    pub fn prefix(&self) -> String {
        format!("/registry/{}/{}/", self.group, self.plural)
    }
}
