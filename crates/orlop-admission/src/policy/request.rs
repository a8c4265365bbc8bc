//! One request, as policies see it.

use std::{borrow::Cow, sync::Arc};

use async_trait::async_trait;
use orlop_api::{
    group_version::{GroupResource, GroupVersionKind, GroupVersionResource},
    object_meta,
    status::Status,
};
use orlop_auth::UnionAuthorizer;
use orlop_cel::ResourceAttributes;
use orlop_kinds::VIRTUAL_RESOURCES;
use serde_json::{Map, Value, json};

use super::source::list;
use crate::{
    AdmissionRequest,
    listers::{Listers, NAMESPACES},
    matching::{AuthorizerChecks, Match, MatchAttributes, NamespaceLabels, ObjectInterfaces},
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
    pub(super) objects: Arc<dyn ObjectInterfaces>,
    pub(super) authorizer: UnionAuthorizer,
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

/// The objects of a request in one version.
pub(super) struct Versioned<'a> {
    pub(super) object: Option<Cow<'a, Value>>,
    pub(super) old: Option<Cow<'a, Value>>,
}

impl<'a> Context<'a> {
    pub(super) fn new(request: &'a AdmissionRequest<'a>, interfaces: &'a Interfaces) -> Self {
        let attributes = request.attributes;
        let mut context = Self {
            request,
            interfaces,
            resource: GroupVersionResource::new(&attributes.group, &attributes.version, &attributes.resource),
            checks: Arc::new(AuthorizerChecks::new(attributes.user.clone())),
            request_resource: ResourceAttributes {
                group: attributes.group.clone(),
                resource: attributes.resource.clone(),
                subresource: request.subresource().to_owned(),
                name: request.name.to_string(),
                ..ResourceAttributes::default()
            },
        };
        context.request_resource.namespace = context.namespace().to_owned();
        context
    }

    pub(super) fn listers(&self) -> &dyn Listers {
        &*self.interfaces.listers
    }

    /// Returns the namespace. That of a Namespace is its name.
    pub(super) fn namespace(&self) -> &str {
        match self.request.is_for("", "namespaces") {
            true => &self.request.name,
            false => self.request.namespace(),
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
            namespace: self.namespace(),
            name: &self.request.name,
            object,
            old,
        }
    }

    /// Returns the value of `namespaceObject`; none for what is not in a namespace.
    pub(super) async fn namespace_object(&self) -> Result<Option<Arc<Value>>, Status> {
        let is_namespace = *self.request.kind == GroupVersionKind::new("", "v1", "Namespace");
        match self.request.namespace() {
            "" => Ok(None),
            _ if is_namespace => Ok(None),
            name => find_namespace(self.listers(), name).await.map(Some),
        }
    }

    /// Returns the objects in the version that a policy matched.
    pub(super) async fn versioned<'b>(
        &self,
        kind: &GroupVersionKind,
        object: Option<&'b Value>,
        old: Option<&'b Value>,
    ) -> Result<Versioned<'b>, Status> {
        Ok(Versioned { object: self.convert(object, kind).await?, old: self.convert(old, kind).await? })
    }

    async fn convert<'b>(
        &self,
        object: Option<&'b Value>,
        kind: &GroupVersionKind,
    ) -> Result<Option<Cow<'b, Value>>, Status> {
        Ok(match object {
            Some(object) if kind != self.request.kind => {
                Some(Cow::Owned(self.interfaces.objects.convert(object.clone(), kind).await?))
            }
            object => object.map(Cow::Borrowed),
        })
    }

    /// Returns the value of `request` for a policy that matched the request as `matched`.
    pub(super) fn admission_request(&self, matched: &Match) -> Value {
        let kind = |kind: &GroupVersionKind| json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
        let resource = |resource: &GroupVersionResource| json!({"group": resource.group, "version": resource.version, "resource": resource.resource});
        let user = &self.request.attributes.user;
        let mut user_info = Map::new();
        for (field, value) in [("username", &user.name), ("uid", &user.uid)] {
            insert_text(&mut user_info, field, value);
        }
        if !user.groups.is_empty() {
            user_info.insert("groups".into(), json!(user.groups));
        }
        if !user.extra.is_empty() {
            user_info.insert("extra".into(), json!(user.extra));
        }
        let mut request = Map::new();
        request.insert("kind".into(), kind(&matched.kind));
        request.insert("resource".into(), resource(&matched.resource));
        request.insert("requestKind".into(), kind(self.request.kind));
        request.insert("requestResource".into(), resource(&self.resource));
        for (field, value) in [
            ("subResource", self.request.subresource()),
            ("requestSubResource", self.request.subresource()),
            ("name", &self.request.name),
            ("namespace", self.namespace()),
        ] {
            insert_text(&mut request, field, value);
        }
        request.insert("operation".into(), self.request.operation.name().into());
        request.insert("userInfo".into(), user_info.into());
        request.insert("dryRun".into(), self.request.dry_run.into());
        request.insert("options".into(), (self.request.options)());
        request.into()
    }
}

fn insert_text(map: &mut Map<String, Value>, field: &str, value: &str) {
    if !value.is_empty() {
        map.insert(field.to_owned(), value.into());
    }
}

/// Labels of namespaces, from the listers.
pub(super) struct Namespaces<'a>(pub(super) &'a dyn Listers);

#[async_trait]
impl NamespaceLabels for Namespaces<'_> {
    async fn labels(&self, namespace: &str) -> Result<Map<String, Value>, Status> {
        let namespace = find_namespace(self.0, namespace).await?;
        let labels = object_meta::of(&namespace).get("labels").and_then(Value::as_object);
        Ok(labels.cloned().unwrap_or_default())
    }
}

async fn find_namespace(listers: &dyn Listers, name: &str) -> Result<Arc<Value>, Status> {
    if let Some(found) = list(listers, NAMESPACES).await?.get("", name) {
        return Ok(found.clone());
    }
    // Another server may have created it a moment ago.
    let found = listers.get(NAMESPACES, "", name).await?;
    found.ok_or_else(|| Status::not_found(&GroupResource::new("", "namespaces"), name))
}
