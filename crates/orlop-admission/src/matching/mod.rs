//! Matching of requests by webhooks and policies.
//!
//! A request is matched in two steps. [`Constraints`] look at its attributes: rules, the selectors of namespaces and
//! objects, and, under match policy Equivalent, the other versions and groups in which the same objects are served.
//! The result names the version in which the webhook or policy sees the objects. [`MatchConditions`] then look at the
//! objects themselves, in CEL.

mod authorizer;
mod conditions;
mod constraints;
mod namespaces;
mod rules;

pub use authorizer::AuthorizerChecks;
pub use conditions::{ConditionsOutcome, MatchConditions, Variables};
pub use constraints::{Constraints, Match};
pub use namespaces::ListedNamespaces;
pub use rules::Rule;

use std::fmt;

use async_trait::async_trait;
use orlop_api::{
    group_version::{GroupVersionKind, GroupVersionResource},
    schema::Schema,
    status::Status,
};
use serde_json::{Map, Value};

use crate::Operation;

/// The parts of a request that rules and selectors look at.
#[derive(Clone, Copy, Debug)]
pub struct MatchAttributes<'a> {
    /// The operation.
    pub operation: Operation,
    /// The resource of the request.
    pub resource: &'a GroupVersionResource,
    /// The subresource; empty for the object itself.
    pub subresource: &'a str,
    /// The kind of the request's object.
    pub kind: &'a GroupVersionKind,
    /// The namespace. That of a Namespace is its name.
    pub namespace: &'a str,
    /// The name of the object; empty while it is not known.
    pub name: &'a str,
    /// The object; absent on delete.
    pub object: Option<&'a Value>,
    /// The object before; absent on create.
    pub old: Option<&'a Value>,
}

/// A resource that serves the same objects as another, and the kind of what is written to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Equivalent {
    /// The resource.
    pub resource: GroupVersionResource,
    /// The kind of the resource, or of the subresource that was asked for.
    pub kind: GroupVersionKind,
}

/// The kinds of a cluster, as matching and webhooks need them.
#[async_trait]
pub trait ObjectInterfaces: fmt::Debug + Send + Sync {
    /// Returns the resources of the same plural name that serve the same objects, with their kinds for a subresource;
    /// those without that subresource are left out. The resource itself is among them.
    fn equivalents(&self, resource: &GroupVersionResource, subresource: &str) -> Vec<Equivalent>;

    /// Converts an object to another kind of the same objects.
    async fn convert(&self, object: Value, to: &GroupVersionKind) -> Result<Value, Status>;

    /// Decodes an object that a webhook or policy changed: checks the types of its fields, drops unknown ones and
    /// applies defaults.
    fn decode(&self, object: Value, kind: &GroupVersionKind) -> Result<Value, String>;

    /// Calls `work` with the schema of a kind, if the kind is served.
    fn with_schema(&self, _kind: &GroupVersionKind, _work: &mut dyn FnMut(&Schema)) {}
}

/// Labels of namespaces.
#[async_trait]
pub trait NamespaceLabels: Send + Sync {
    /// Returns the labels of a namespace; NotFound if there is none.
    async fn labels(&self, namespace: &str) -> Result<Map<String, Value>, Status>;
}
