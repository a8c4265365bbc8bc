//! Requests as Kubernetes classifies them.

mod attributes;
mod selectors;
mod subresource;
mod verb;

pub use attributes::{Attributes, leading_segments};
pub use selectors::Selectors;
pub use subresource::Subresource;
pub use verb::Verb;
