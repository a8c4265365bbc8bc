//! Parts that the workload controllers share: pod predicates, claiming, creating and deleting pods, hashes.

pub(crate) mod claim;
pub(crate) mod hash;
pub(crate) mod int_or_percent;
pub(crate) mod node_match;
pub(crate) mod ownership;
pub(crate) mod pod_control;
pub(crate) mod pods;
pub(crate) mod resources;
pub(crate) mod revisions;
pub(crate) mod selector;
pub(crate) mod slow_start;
pub(crate) mod time;
