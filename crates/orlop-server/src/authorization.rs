//! The authorizers of a cluster that know the store, by the names of their modes.

use std::sync::Arc;

use orlop_auth::{
    Authorizer,
    authorizer::{AlwaysAllow, AlwaysDeny},
};

use crate::{cluster::Cluster, node_graph::NodeAuthorizer, rbac::RbacAuthorizer};

/// Authorizers that need no configuration.
#[derive(Clone, Debug)]
pub struct BuiltinAuthorizers {
    node: Arc<NodeAuthorizer>,
    rbac: Arc<RbacAuthorizer>,
}

impl BuiltinAuthorizers {
    /// Returns the authorizers of a cluster. They load what they need when they are first asked.
    pub fn new(cluster: &Cluster) -> Self {
        Self {
            node: Arc::new(NodeAuthorizer::new(cluster.objects.clone(), cluster.closing_state())),
            rbac: Arc::new(RbacAuthorizer(cluster.policy.clone())),
        }
    }

    /// Returns the authorizer of a mode; `None` if it is none of these.
    pub fn get(&self, mode: &str) -> Option<Arc<dyn Authorizer>> {
        match mode {
            "Node" => Some(self.node.clone()),
            "RBAC" => Some(self.rbac.clone()),
            "AlwaysAllow" => Some(Arc::new(AlwaysAllow)),
            "AlwaysDeny" => Some(Arc::new(AlwaysDeny)),
            _ => None,
        }
    }

    /// Returns the authorizers of a server without configuration: Node, then RBAC.
    pub fn default_modes(&self) -> Vec<Arc<dyn Authorizer>> {
        vec![self.node.clone(), self.rbac.clone()]
    }
}
