//! Listers over a table, and requests without a server, for tests of plugins.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use orlop_api::{
    group_version::{GroupVersionKind, GroupVersionResource},
    object_meta,
    status::Status,
    user::UserInfo,
    warnings::Warnings,
};
use orlop_auth::{
    Authorizer, Decision, UnionAuthorizer,
    authorizer::{Authorizing, Rules, decided},
    request::{Attributes, Subresource},
};
use serde_json::{Value, json};

use crate::{
    Admission, AdmissionRequest, Operation, Reinvocation,
    listers::{Listers, Resource, Snapshot},
};

/// Objects by resource.
#[derive(Debug, Default)]
pub(crate) struct FakeListers(Mutex<BTreeMap<String, Snapshot>>);

impl FakeListers {
    pub(crate) fn add(&self, resource: Resource<'_>, namespace: &str, object: Value) {
        let name = object_meta::text(object_meta::of(&object), "name").to_owned();
        let key = if namespace.is_empty() { name } else { format!("{namespace}/{name}") };
        self.0.lock().unwrap().entry(resource.resource.to_owned()).or_default().apply(&key, Some(object));
    }

    pub(crate) fn with(objects: &[(Resource<'_>, &str, Value)]) -> Arc<Self> {
        let listers = Self::default();
        objects
            .iter()
            .for_each(|(resource, namespace, object)| listers.add(*resource, namespace, object.clone()));
        Arc::new(listers)
    }
}

#[async_trait]
impl Listers for FakeListers {
    async fn get(
        &self,
        resource: Resource<'_>,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<Value>>, Status> {
        Ok(self.list(resource).await?.get(namespace, name).cloned())
    }

    async fn list(&self, resource: Resource<'_>) -> Result<Arc<Snapshot>, Status> {
        Ok(Arc::new(self.0.lock().unwrap().get(resource.resource).cloned().unwrap_or_default()))
    }

    async fn list_namespace(
        &self,
        resource: Resource<'_>,
        namespace: &str,
    ) -> Result<Vec<Arc<Value>>, Status> {
        Ok(self.list(resource).await?.in_namespace(namespace).cloned().collect())
    }

    fn loaded(&self, resource: Resource<'_>) -> Option<Arc<Snapshot>> {
        self.0.lock().unwrap().get(resource.resource).cloned().map(Arc::new)
    }

    fn resource_of(&self, group: &str, version: &str, kind: &str) -> Option<(GroupVersionResource, bool)> {
        let plural = format!("{}s", kind.to_lowercase());
        Some((GroupVersionResource::new(group, version, plural), kind != "Node" && kind != "Namespace"))
    }
}

/// An authorizer that allows verbs on names.
#[derive(Debug)]
pub(crate) struct Grants(Vec<(String, String)>);

impl Grants {
    pub(crate) fn authorizer(grants: &[(&str, &str)]) -> UnionAuthorizer {
        let grants = grants.iter().map(|(verb, name)| ((*verb).to_owned(), (*name).to_owned())).collect();
        UnionAuthorizer::new(vec![Arc::new(Self(grants))])
    }
}

#[async_trait]
impl Authorizer for Grants {
    fn authorize<'a>(&'a self, attributes: &'a Attributes) -> Authorizing<'a> {
        let asked = (attributes.verb.to_string(), attributes.name.clone());
        let is_granted = self.0.contains(&asked);
        let decision = if is_granted { Decision::Allow } else { Decision::NoOpinion };
        decided(decision("".into()))
    }

    async fn rules(&self, _user: &UserInfo, _namespace: &str) -> Rules {
        Rules::default()
    }
}

/// A request to run a plugin with.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) operation: Operation,
    pub(crate) attributes: Attributes,
    pub(crate) warnings: Warnings,
    pub(crate) options: Value,
    pub(crate) dry_run: bool,
    pub(crate) old: Option<Value>,
}

impl Run {
    pub(crate) fn new(operation: Operation, group: &str, resource: &str) -> Self {
        let attributes = Attributes {
            user: Arc::new(UserInfo::authenticated("somebody", [])),
            is_resource_request: true,
            group: group.to_owned(),
            version: "v1".to_owned(),
            resource: resource.to_owned(),
            namespace: "ns".to_owned(),
            ..Attributes::default()
        };
        let warnings = Warnings::default();
        Self { operation, attributes, warnings, options: json!({}), dry_run: false, old: None }
    }

    pub(crate) fn create(group: &str, resource: &str) -> Self {
        Self::new(Operation::Create, group, resource)
    }

    pub(crate) fn update(group: &str, resource: &str, old: Value) -> Self {
        Self { old: Some(old), ..Self::new(Operation::Update, group, resource) }
    }

    pub(crate) fn by(mut self, user: UserInfo) -> Self {
        self.attributes.user = Arc::new(user);
        self
    }

    pub(crate) fn at(mut self, subresource: &str) -> Self {
        self.attributes.subresource = Some(Subresource::from(subresource));
        self
    }

    /// Runs both passes of a plugin, as far as it handles them. Returns the object.
    pub(crate) async fn mutate(&self, plugin: &dyn Admission, mut object: Value) -> Result<Value, Status> {
        let kind = GroupVersionKind::new(&self.attributes.group, &self.attributes.version, "Kind");
        let reinvocation = Reinvocation::default();
        let named = if object.is_null() { self.old.as_ref().unwrap_or(&Value::Null) } else { &object };
        let name = object_meta::text(object_meta::of(named), "name").to_owned();
        let options = || self.options.clone();
        let request = AdmissionRequest {
            operation: self.operation,
            attributes: &self.attributes,
            name: name.into(),
            kind: &kind,
            options: &options,
            dry_run: self.dry_run,
            warnings: &self.warnings,
            audit: None,
            reinvocation: &reinvocation,
            deadline: None,
        };
        if plugin.handles(crate::Phase::Mutating, self.operation) {
            plugin.mutate(&request, &mut object, self.old.as_ref()).await?;
        }
        if plugin.handles(crate::Phase::Validating, self.operation) {
            let new = (!object.is_null()).then_some(&object);
            plugin.validate(&request, new, self.old.as_ref()).await?;
        }
        Ok(object)
    }
}

/// Returns the message of a refusal; empty if there is none.
pub(crate) fn message(result: Result<Value, Status>) -> String {
    result.err().map(|status| status.message).unwrap_or_default()
}
