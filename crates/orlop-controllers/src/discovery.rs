//! Resources that the server serves, with their capabilities.

use std::collections::HashMap;

use kube::{
    Client,
    core::{ApiResource, DynamicObject, PartialObjectMeta},
    discovery::{ApiCapabilities, Discovery, Scope, verbs},
};

/// Metadata of an object of any kind.
pub(crate) type Metadata = PartialObjectMeta<DynamicObject>;
/// API of objects of any kind. Only their metadata is ever requested.
pub(crate) type Api = kube::Api<DynamicObject>;

/// A resource in the version that the server prefers.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    pub(crate) api: ApiResource,
    pub(crate) namespaced: bool,
    capabilities: ApiCapabilities,
}

impl Resource {
    /// Returns the API of its objects in one namespace or in all.
    pub(crate) fn objects(&self, client: &Client, namespace: Option<&str>) -> Api {
        match namespace {
            Some(namespace) if self.namespaced => Api::namespaced_with(client.clone(), namespace, &self.api),
            _ => Api::all_with(client.clone(), &self.api),
        }
    }

    /// Returns the apiVersion and kind of its objects.
    pub(crate) fn type_of(&self) -> (&str, &str) {
        (&self.api.api_version, &self.api.kind)
    }

    pub(crate) fn can(&self, verb: &str) -> bool {
        self.capabilities.supports_operation(verb)
    }

    /// Returns whether the garbage collector can watch and delete its objects.
    pub(crate) fn is_collectable(&self) -> bool {
        [verbs::DELETE, verbs::LIST, verbs::WATCH].iter().all(|verb| self.can(verb))
    }
}

/// All resources by group and kind.
#[derive(Debug, Default)]
pub(crate) struct Resources {
    known: HashMap<(String, String), Resource>,
    /// Group versions whose API server could not be asked.
    stale: Vec<String>,
}

impl Resources {
    pub(crate) async fn discover(client: &Client) -> kube::Result<Self> {
        let discovery = Discovery::new(client.clone()).run_aggregated().await?;
        let stale = stale_versions(client).await?;
        let mut found = HashMap::new();
        for group in discovery.groups() {
            for (api, capabilities) in group.recommended_resources() {
                let namespaced = capabilities.scope == Scope::Namespaced;
                let key = (api.group.clone(), api.kind.clone());
                found.insert(key, Resource { api, namespaced, capabilities });
            }
        }
        Ok(Self { known: found, stale })
    }

    /// Returns the resource of a kind. Its version does not matter: the objects are the same.
    pub(crate) fn get(&self, api_version: &str, kind: &str) -> Option<&Resource> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        self.known.get(&(group.to_owned(), kind.to_owned()))
    }

    /// Returns whether a kind is served.
    pub(crate) fn has(&self, group: &str, kind: &str) -> bool {
        self.known.contains_key(&(group.to_owned(), kind.to_owned()))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Resource> {
        self.known.values()
    }

    /// Returns the group versions whose API server could not be asked. There may be objects of them.
    pub(crate) fn stale(&self) -> &[String] {
        &self.stale
    }
}

/// Returns the group versions that the server says it knows no resources of, since their API server does not answer.
async fn stale_versions(client: &Client) -> kube::Result<Vec<String>> {
    let mut stale = Vec::new();
    for group in client.list_api_groups_aggregated().await?.items {
        let name = group.metadata.and_then(|metadata| metadata.name).unwrap_or_default();
        for version in group.versions {
            if version.freshness.as_deref() == Some("Stale") {
                stale.push(format!("{name}/{}", version.version.unwrap_or_default()));
            }
        }
    }
    Ok(stale)
}
