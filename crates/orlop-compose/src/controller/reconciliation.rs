//! State of one reconciliation of an instance.

use std::sync::Arc;

use serde_json::Value as Json;

use super::memory::InstanceKey;
use super::{Controller, Served};
use crate::cluster::Resource;
use crate::conditions::Conditions;
use crate::graph::Graph;

/// One reconciliation of a live instance.
pub(super) struct Reconciliation<'c> {
    pub(super) controller: &'c Arc<Controller>,
    pub(super) key: &'c InstanceKey,
    pub(super) served: &'c Arc<Served>,
    pub(super) graph: &'c Arc<Graph>,
    pub(super) applyset: String,
    pub(super) conditions: Conditions,
    pub(super) resource: Resource,
    pub(super) instance: Json,
}
