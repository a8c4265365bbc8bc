//! CustomResourceDefinitions: the generated ones, their compatibility, and those of this controller.

mod compat;
mod generate;
mod own;

pub use compat::{Change, breaking_changes};
pub use generate::{generate, is_same};
pub use own::{definition_crd, revision_crd};
