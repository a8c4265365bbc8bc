//! Resources that the server serves, with their capabilities.

use std::collections::HashMap;

use http::{Request, header};
use orlop_client::{
    Api, Client,
    core::{
        ApiResource, DynamicObject, PartialObjectMeta,
        discovery::{
            v2::{ACCEPT_AGGREGATED_DISCOVERY_V2, APIGroupDiscovery, APIGroupDiscoveryList},
            verbs,
        },
    },
};

/// Metadata of an object of any kind.
pub(crate) type Metadata = PartialObjectMeta<DynamicObject>;

/// A resource in the version that the server prefers.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    pub(crate) api: ApiResource,
    pub(crate) namespaced: bool,
    verbs: Vec<String>,
}

impl Resource {
    /// Returns the API of its objects in one namespace or in all. Only their metadata is ever requested.
    pub(crate) fn objects(&self, client: &Client, namespace: Option<&str>) -> Api<Metadata> {
        match namespace {
            Some(namespace) if self.namespaced => Api::namespaced_with(client.clone(), namespace, &self.api),
            _ => Api::all_with(client.clone(), &self.api),
        }
    }

    /// Returns the API of its whole objects in one namespace or in all.
    pub(crate) fn whole_objects(&self, client: &Client, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) if self.namespaced => Api::namespaced_with(client.clone(), namespace, &self.api),
            _ => Api::all_with(client.clone(), &self.api),
        }
    }

    /// Returns its name with its group, such as `ingresses.networking.k8s.io`.
    pub(crate) fn name_with_group(&self) -> String {
        match self.api.group.as_str() {
            "" => self.api.plural.clone(),
            group => format!("{}.{group}", self.api.plural),
        }
    }

    /// Returns the apiVersion and kind of its objects.
    pub(crate) fn type_of(&self) -> (&str, &str) {
        (&self.api.api_version, &self.api.kind)
    }

    pub(crate) fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
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
    pub(crate) async fn discover(client: &Client) -> orlop_client::Result<Self> {
        let (mut known, mut stale) = (HashMap::new(), Vec::new());
        for root in ["/apis", "/api"] {
            let request =
                Request::get(root).header(header::ACCEPT, ACCEPT_AGGREGATED_DISCOVERY_V2).body(Vec::new());
            let request = request.map_err(orlop_client::Error::HttpError)?;
            for group in client.request::<APIGroupDiscoveryList>(request).await?.items {
                stale.extend(stale_versions(&group));
                known.extend(
                    resources(group)
                        .map(|resource| ((resource.api.group.clone(), resource.api.kind.clone()), resource)),
                );
            }
        }
        Ok(Self { known, stale })
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

/// Returns the resources of a group in the version that the server prefers, which is the first.
fn resources(group: APIGroupDiscovery) -> impl Iterator<Item = Resource> {
    let name = name_of(&group);
    group.versions.into_iter().take(1).flat_map(move |version| {
        let number = version.version.unwrap_or_default();
        let api_version = if name.is_empty() { number.clone() } else { format!("{name}/{number}") };
        let group = name.clone();
        version.resources.into_iter().map(move |resource| Resource {
            api: ApiResource {
                group: group.clone(),
                version: number.clone(),
                api_version: api_version.clone(),
                kind: resource.response_kind.and_then(|kind| kind.kind).unwrap_or_default(),
                plural: resource.resource.unwrap_or_default(),
            },
            namespaced: resource.scope.as_deref() == Some("Namespaced"),
            verbs: resource.verbs,
        })
    })
}

/// Returns the versions of a group that the server says it knows no resources of, since their API server does not answer.
fn stale_versions(group: &APIGroupDiscovery) -> Vec<String> {
    let versions = group.versions.iter().filter(|version| version.freshness.as_deref() == Some("Stale"));
    let name = name_of(group);
    versions.map(|version| format!("{name}/{}", version.version.as_deref().unwrap_or_default())).collect()
}

fn name_of(group: &APIGroupDiscovery) -> String {
    group.metadata.as_ref().and_then(|metadata| metadata.name.clone()).unwrap_or_default()
}
