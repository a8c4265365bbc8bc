//! Node authorization: a kubelet may read what its pods use, and write its own objects.
//!
//! - [`references`]: the objects that pods and volumes refer to;
//! - [`graph`]: which objects are in use on which node;
//! - [`decide`]: the rules by which a node's request is decided.
//!
//! Everything is pure. The server feeds the graph with what it watches.

pub mod decide;
pub mod graph;
pub mod references;

pub use decide::{NodeRules, Ruling, node_name};
pub use graph::Graph;
pub use references::Target;
