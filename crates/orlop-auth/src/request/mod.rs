//! Requests as Kubernetes classifies them.

mod attributes;
mod subresource;
mod verb;

pub use attributes::Attributes;
pub use subresource::Subresource;
pub use verb::Verb;
