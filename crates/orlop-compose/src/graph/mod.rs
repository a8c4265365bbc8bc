//! The compiled graph of a ResourceGraphDefinition. Pure: building it and evaluating it do no I/O.
//!
//! `build` checks a definition against the kinds it uses and compiles it; `evaluate` fills it in for one instance.

mod build;
pub(crate) mod conditions;
mod evaluate;
mod names;
mod status;
pub(crate) mod template;

use std::sync::Arc;

pub use build::{BuildError, Built, Limits, build, required_kinds};
pub(crate) use evaluate::{Item, Ready, Target, include, ready, resolve};
pub(crate) use status::StatusTemplate;
use template::Template;

use crate::definition::{DeletionPolicy, Lifecycle};
use crate::expression::{Expression, Reads};
use crate::kinds::{Gvk, Kind};

/// A compiled definition.
#[derive(Debug)]
pub struct Graph {
    /// Name of the ResourceGraphDefinition.
    pub name: String,
    /// The kind it defines.
    pub gvk: Gvk,
    /// Resource of that kind.
    pub plural: String,
    /// True if instances live in namespaces.
    pub namespaced: bool,
    /// Nodes in topological order.
    pub nodes: Vec<Node>,
    /// Ids in topological order.
    pub order: Vec<String>,
    /// Service account that children are applied as: a name, or an expression of the instance.
    pub(crate) service_account: Option<Template>,
    /// Deletion policy of instances when the definition is deleted.
    pub deletion_policy: DeletionPolicy,
    /// Most items of a collection.
    pub collection_max: usize,
    pub(crate) status: StatusTemplate,
}

/// A node of the graph.
#[derive(Debug)]
pub struct Node {
    /// Name in expressions.
    pub id: String,
    /// Role of the node.
    pub role: Role,
    /// Kind of its objects.
    pub kind: Arc<Kind>,
    /// Nodes that must be ready first, as indices.
    pub dependencies: Vec<usize>,
    /// Nodes that its expressions read, as indices; also among `dependencies`.
    pub data_dependencies: Vec<usize>,
    /// Nodes that are waited for only while they are under way, as indices.
    pub soft_dependencies: Vec<usize>,
    /// Deletion wave.
    pub wave: usize,
    /// Adoption and deletion.
    pub lifecycle: Lifecycle,
    /// Manifest, or the reference of an external node.
    pub(crate) template: Template,
    pub(crate) include_when: Vec<Expression>,
    /// Conditions, with the fields that each reads.
    pub(crate) ready_when: Vec<(Expression, Reads)>,
    pub(crate) for_each: Vec<(String, Expression)>,
}

/// Role of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// One managed object.
    Single,
    /// A managed object per item of `forEach`.
    Collection,
    /// One object of somebody else.
    ExternalName,
    /// Objects of somebody else, by labels.
    ExternalSelector,
}

impl Role {
    /// Returns true if expressions see a list.
    pub fn is_list(self) -> bool {
        matches!(self, Self::Collection | Self::ExternalSelector)
    }

    /// Returns true if the objects are managed here.
    pub fn is_managed(self) -> bool {
        matches!(self, Self::Single | Self::Collection)
    }
}

impl Graph {
    /// The node of this id.
    pub fn node(&self, id: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// The ids that a node depends on.
    pub fn dependency_ids<'g>(&'g self, node: &'g Node) -> impl Iterator<Item = &'g str> {
        let all = node.dependencies.iter().chain(&node.soft_dependencies);
        all.filter_map(|index| self.nodes.get(*index)).map(|node| node.id.as_str())
    }
}
