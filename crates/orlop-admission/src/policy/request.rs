//! One request, as policies see it.

use std::sync::Arc;

use orlop_api::{
    group_version::{GroupVersionKind, GroupVersionResource},
    status::Status,
};
use orlop_auth::UnionAuthorizer;
use orlop_cel::ResourceAttributes;
use orlop_kinds::VIRTUAL_RESOURCES;
use serde_json::Value;

use super::metrics::PolicyMetrics;
use crate::{
    AdmissionRequest,
    listers::Listers,
    matching::{AuthorizerChecks, ListedNamespaces, Match, MatchAttributes, ObjectInterfaces},
    webhook::{Versioned, request_variable},
};

const GROUP: &str = "admissionregistration.k8s.io";
/// Resources that no policy sees: one that failed could not be removed.
const POLICY_RESOURCES: [&str; 4] = [
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
];

/// Returns true if no policy sees a request.
pub(super) fn is_exempt(request: &AdmissionRequest<'_>) -> bool {
    let (group, resource) = (request.attributes.group.as_str(), request.attributes.resource.as_str());
    match group {
        GROUP => POLICY_RESOURCES.contains(&resource),
        _ => VIRTUAL_RESOURCES.contains(&(group, resource)),
    }
}

/// The parts of a cluster that policies are evaluated with.
#[derive(Clone, Debug)]
pub(super) struct Interfaces {
    pub(super) listers: Arc<dyn Listers>,
    pub(super) namespaces: ListedNamespaces,
    pub(super) objects: Arc<dyn ObjectInterfaces>,
    pub(super) authorizer: UnionAuthorizer,
    pub(super) metrics: PolicyMetrics,
}

impl Interfaces {
    pub(super) fn new(
        listers: Arc<dyn Listers>,
        objects: Arc<dyn ObjectInterfaces>,
        authorizer: UnionAuthorizer,
        metrics: PolicyMetrics,
    ) -> Self {
        Self { namespaces: ListedNamespaces::new(listers.clone()), listers, objects, authorizer, metrics }
    }
}

/// A request that policies are evaluated for.
pub(super) struct Context<'a> {
    pub(super) request: &'a AdmissionRequest<'a>,
    pub(super) interfaces: &'a Interfaces,
    pub(super) resource: GroupVersionResource,
    pub(super) checks: Arc<AuthorizerChecks>,
    /// Attributes that `authorizer.requestResource` checks.
    pub(super) request_resource: ResourceAttributes,
}

impl<'a> Context<'a> {
    pub(super) fn new(request: &'a AdmissionRequest<'a>, interfaces: &'a Interfaces) -> Self {
        let attributes = request.attributes;
        Self {
            request,
            interfaces,
            resource: request.resource(),
            checks: Arc::new(AuthorizerChecks::new(attributes.user.clone())),
            request_resource: ResourceAttributes {
                group: attributes.group.clone(),
                resource: attributes.resource.clone(),
                subresource: request.subresource().to_owned(),
                namespace: request.review_namespace().to_owned(),
                name: request.name.to_string(),
                ..ResourceAttributes::default()
            },
        }
    }

    pub(super) fn attributes<'b>(
        &'b self,
        object: Option<&'b Value>,
        old: Option<&'b Value>,
    ) -> MatchAttributes<'b> {
        MatchAttributes {
            operation: self.request.operation,
            resource: &self.resource,
            subresource: self.request.subresource(),
            kind: self.request.kind,
            namespace: self.request.review_namespace(),
            name: &self.request.name,
            object,
            old,
        }
    }

    /// Returns the value of `namespaceObject`; none for objects that are not in a namespace.
    pub(super) async fn namespace_object(&self) -> Result<Option<Arc<Value>>, Status> {
        let is_namespace = *self.request.kind == GroupVersionKind::new("", "v1", "Namespace");
        match self.request.namespace() {
            "" => Ok(None),
            _ if is_namespace => Ok(None),
            name => self.interfaces.namespaces.get(name).await.map(Some),
        }
    }

    /// Returns the objects in the version that a policy matched.
    pub(super) async fn versioned<'b>(
        &self,
        kind: &GroupVersionKind,
        object: Option<&'b Value>,
        old: Option<&'b Value>,
    ) -> Result<Versioned<'b>, Status> {
        let versioned = Versioned::new(self.request.kind, object, old);
        versioned.convert(&*self.interfaces.objects, kind).await
    }

    /// Returns the value of `request` for a policy that matched the request as `matched`.
    pub(super) fn request_variable(&self, matched: &Match) -> Value {
        request_variable(self.request, &self.resource, matched)
    }
}
