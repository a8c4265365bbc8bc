//! Preconditions of writes. Each contributes compares and operations to the transaction of the write.

use orlop_admission::Operation;
use orlop_api::{object_meta, status::Status};
use orlop_store::Op;
use serde_json::Value;

use super::Request;
use crate::{
    definitions,
    storage::{Contribution, allocation, namespace},
};

/// A precondition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Precondition {
    /// The cluster IPs and node ports of a service are allocated with it.
    ServiceAllocations,
    /// The names of a CustomResourceDefinition are claimed with it.
    DefinitionNames,
    /// The definition of a custom resource exists and is not terminating.
    DefinitionServed,
    /// The namespace of an object exists and is not terminating.
    NamespaceActive,
}

/// All preconditions, in the order in which they are evaluated.
const ALL: [Precondition; 4] = [
    Precondition::ServiceAllocations,
    Precondition::DefinitionNames,
    Precondition::DefinitionServed,
    Precondition::NamespaceActive,
];

/// The preconditions of one write.
#[derive(Debug, Default)]
pub(super) struct Preconditions {
    pub(super) contribution: Contribution,
    /// True if a compare comes from a cache: if the transaction fails, the cache may have been stale.
    pub(super) from_cache: bool,
}

impl Preconditions {
    /// Evaluates the preconditions of a create or update. Completes the object with what it is allocated.
    /// `old` is absent on create.
    pub(super) async fn evaluate(
        request: &Request,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<Self, Status> {
        let mut preconditions = Self::default();
        for precondition in ALL.into_iter().filter(|precondition| precondition.applies(request, old)) {
            preconditions.add(precondition, request, object, old).await?;
        }
        Ok(preconditions)
    }

    async fn add(
        &mut self,
        precondition: Precondition,
        request: &Request,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let (objects, kind, namespace) =
            (&request.cluster.objects, &request.kind, &request.attributes.namespace);
        match precondition {
            Precondition::ServiceAllocations => {
                self.contribution.merge(allocation::allocate(objects, object, old).await?);
            }
            Precondition::DefinitionNames => {
                self.contribution.merge(definitions::names::claim(objects, object, old).await?);
            }
            Precondition::DefinitionServed => {
                let definitions = &request.cluster.definitions;
                self.contribution.compares.extend(definitions.precondition(objects, kind, name(object))?);
            }
            Precondition::NamespaceActive => {
                let cached = namespace::cached(objects, kind, namespace);
                self.from_cache = cached.is_some();
                self.contribution.compares.extend(match cached {
                    Some(compare) => Some(compare),
                    None => namespace::read(objects, kind, namespace, name(object)).await?,
                });
            }
        }
        Ok(())
    }
}

impl Precondition {
    fn applies(self, request: &Request, old: Option<&Value>) -> bool {
        match self {
            Self::ServiceAllocations => {
                allocation::allocates(&request.kind, request.attributes.subresource_name())
            }
            Self::DefinitionNames => definitions::is_definition(&request.kind),
            Self::DefinitionServed => old.is_none() && request.kind.flags.custom,
            Self::NamespaceActive => old.is_none() && request.kind.namespaced && has_lifecycle(request),
        }
    }

    /// Returns true if evaluation changes the object.
    fn completes_object(self) -> bool {
        matches!(self, Self::ServiceAllocations | Self::DefinitionNames)
    }
}

/// Returns true if the preconditions of a create change the object.
pub(super) fn complete_object(request: &Request) -> bool {
    ALL.iter().any(|precondition| precondition.completes_object() && precondition.applies(request, None))
}

/// Checks that an object may be created, without allocating anything.
pub(super) async fn check(request: &Request, name: &str) -> Result<(), Status> {
    let (objects, kind) = (&request.cluster.objects, &request.kind);
    request.cluster.definitions.precondition(objects, kind, name)?;
    if !has_lifecycle(request) {
        return Ok(());
    }
    namespace::read(objects, kind, &request.attributes.namespace, name).await.map(drop)
}

/// Checks early that the namespace of a new object exists and is not terminating. One that was active when it was last
/// read is not read again: the transaction of the write compares its revision.
pub(super) async fn check_namespace(request: &Request, object: &Value) -> Result<(), Status> {
    let (objects, kind, namespace) = (&request.cluster.objects, &request.kind, &request.attributes.namespace);
    let is_known = || namespace::cached(objects, kind, namespace).is_some();
    if !kind.namespaced || !has_lifecycle(request) || is_known() {
        return Ok(());
    }
    namespace::read(objects, kind, namespace, name(object)).await.map(drop)
}

/// Returns the result of admission. A namespace that is gone by now is reported before what a plugin missed in it.
pub(super) async fn prefer_namespace(
    request: &Request,
    object: &Value,
    operation: Operation,
    admitted: Result<(), Status>,
) -> Result<(), Status> {
    let is_in_namespace = request.kind.namespaced && has_lifecycle(request);
    if admitted.is_err() && operation == Operation::Create && is_in_namespace {
        let (objects, namespace) = (&request.cluster.objects, &request.attributes.namespace);
        namespace::read(objects, &request.kind, namespace, name(object)).await?;
    }
    admitted
}

/// Returns the operations that release what a deleted object was allocated.
pub(super) fn release(request: &Request, object: &Value) -> Vec<Op> {
    let objects = &request.cluster.objects;
    if definitions::is_definition(&request.kind) {
        definitions::names::release(objects, object)
    } else if allocation::allocates(&request.kind, "") {
        allocation::release(objects, object)
    } else {
        Vec::new()
    }
}

/// Returns true if a create needs its namespace.
fn has_lifecycle(request: &Request) -> bool {
    let plugins = request.cluster.admission().server_plugins();
    plugins.namespace_lifecycle || plugins.namespace_exists
}

fn name(object: &Value) -> &str {
    object_meta::text(object_meta::of(object), "name")
}
