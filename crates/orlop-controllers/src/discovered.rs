//! Which resources there are, as the server says now.

use std::collections::HashMap;

use kube::{
    Client,
    core::{ApiResource, DynamicObject, PartialObjectMeta},
    discovery::{ApiCapabilities, Discovery, Scope, verbs},
};

/// An object of any kind, without its content.
pub(crate) type Metadata = PartialObjectMeta<DynamicObject>;
/// A way to objects of any kind. Only their metadata is ever asked for.
pub(crate) type Api = kube::Api<DynamicObject>;

/// A resource and what can be done with it.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    pub(crate) api: ApiResource,
    pub(crate) namespaced: bool,
    supports: ApiCapabilities,
}

impl Resource {
    /// A way to its objects: of one namespace, or of all.
    pub(crate) fn objects(&self, client: &Client, namespace: Option<&str>) -> Api {
        match namespace {
            Some(namespace) if self.namespaced => Api::namespaced_with(client.clone(), namespace, &self.api),
            _ => Api::all_with(client.clone(), &self.api),
        }
    }

    /// The apiVersion and kind of its objects.
    pub(crate) fn type_of(&self) -> (&str, &str) {
        (&self.api.api_version, &self.api.kind)
    }

    pub(crate) fn can(&self, verb: &str) -> bool {
        self.supports.supports_operation(verb)
    }

    /// Whether objects of it come and go, and can be seen to.
    pub(crate) fn is_collectable(&self) -> bool {
        [verbs::DELETE, verbs::LIST, verbs::WATCH].iter().all(|verb| self.can(verb))
    }
}

/// Every resource, by group and kind: each in the version that the server prefers.
#[derive(Debug, Default)]
pub(crate) struct Resources(HashMap<(String, String), Resource>);

impl Resources {
    pub(crate) async fn discover(client: &Client) -> kube::Result<Self> {
        let discovery = Discovery::new(client.clone()).run_aggregated().await?;
        let mut found = HashMap::new();
        for group in discovery.groups() {
            for (api, supports) in group.recommended_resources() {
                let namespaced = supports.scope == Scope::Namespaced;
                let key = (api.group.clone(), api.kind.clone());
                found.insert(key, Resource { api, namespaced, supports });
            }
        }
        Ok(Self(found))
    }

    /// The resource of a kind, whichever of its versions is named: the objects are the same.
    pub(crate) fn get(&self, api_version: &str, kind: &str) -> Option<&Resource> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        self.0.get(&(group.to_owned(), kind.to_owned()))
    }

    /// Whether there is a resource of a kind.
    pub(crate) fn has(&self, group: &str, kind: &str) -> bool {
        self.0.contains_key(&(group.to_owned(), kind.to_owned()))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Resource> {
        self.0.values()
    }
}
