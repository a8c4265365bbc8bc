//! Requests as Kubernetes classifies them, and the options that their queries carry.

mod attributes;
pub mod options;
pub(crate) mod resource_version;
mod subresource;
mod verb;

pub use attributes::Attributes;
pub use subresource::Subresource;
pub use verb::Verb;
