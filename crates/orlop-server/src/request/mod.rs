//! Requests as Kubernetes classifies them, and the options that their queries carry.

pub mod options;
pub(crate) mod resource_version;

pub use orlop_auth::request::{Attributes, Selectors, Subresource, Verb};
