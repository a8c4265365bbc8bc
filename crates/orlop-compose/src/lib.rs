//! ResourceGraphDefinitions: a graph of resources as a new kind.

mod applyset;
mod builtin;
mod cluster;
mod conditions;
mod controller;
pub mod crd;
mod dag;
pub mod definition;
mod expression;
pub mod graph;
pub mod kinds;
mod metrics;
mod names;
pub mod offline;
mod picture;
pub mod plan;
mod plural;
pub mod render;
pub mod simple_schema;

pub use controller::{Settings, run};
pub use metrics::Metrics;

/// Name of the controller, for leader election and metrics.
pub const NAME: &str = "resource-graph-definition-controller";
