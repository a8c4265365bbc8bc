//! Requests as Kubernetes classifies them, and the options that their queries carry.

pub mod options;
pub(crate) mod resource_version;

use std::time::Instant;

pub use orlop_auth::request::{Attributes, Selectors, Subresource, Verb};

/// Time at which a request is answered in any case. An extension of requests that write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(pub(crate) Instant);
