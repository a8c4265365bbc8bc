//! Resource quotas: the usage of objects, and quotas that charge it.
//!
//! Modules form layers; each imports only those above it in this list:
//!
//! ```text
//! resources    lists of quantities by resource, and those of pods
//! evaluator    usage of objects, by resource: pods, services, claims, counts
//! charge       quotas that a write is charged to
//! ```
//!
//! Admission and the quota controller share it. Everything is pure: the time is given.

pub mod charge;
pub mod evaluator;
pub mod resources;

pub use charge::{Request, charge, is_covered};
pub use evaluator::Evaluator;
pub use resources::ResourceList;
