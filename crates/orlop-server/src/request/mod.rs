//! Requests as Kubernetes classifies them, and the options that their queries carry.

pub mod info;
pub mod options;
pub(crate) mod resource_version;

pub use info::{RequestInfo, ResourceInfo};
