//! The objects that plugins read. The server implements it over the store.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use imbl::OrdMap;
use orlop_api::{group_version::GroupVersionResource, status::Status};
use serde_json::Value;

/// A resource in a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Resource<'a> {
    /// API group; empty for core.
    pub group: &'a str,
    /// Version that objects are returned in.
    pub version: &'a str,
    /// Plural name.
    pub resource: &'a str,
}

impl<'a> Resource<'a> {
    /// Returns a resource.
    pub const fn new(group: &'a str, version: &'a str, resource: &'a str) -> Self {
        Self { group, version, resource }
    }
}

impl<'a> From<&'a GroupVersionResource> for Resource<'a> {
    fn from(gvr: &'a GroupVersionResource) -> Self {
        Self::new(&gvr.group, &gvr.version, &gvr.resource)
    }
}

/// Namespaces.
pub const NAMESPACES: Resource<'_> = Resource::new("", "v1", "namespaces");
/// Nodes.
pub const NODES: Resource<'_> = Resource::new("", "v1", "nodes");
/// Pods.
pub const PODS: Resource<'_> = Resource::new("", "v1", "pods");
/// Service accounts.
pub const SERVICE_ACCOUNTS: Resource<'_> = Resource::new("", "v1", "serviceaccounts");
/// Limit ranges.
pub const LIMIT_RANGES: Resource<'_> = Resource::new("", "v1", "limitranges");
/// Resource quotas.
pub const RESOURCE_QUOTAS: Resource<'_> = Resource::new("", "v1", "resourcequotas");
/// Persistent volume claims.
pub const PERSISTENT_VOLUME_CLAIMS: Resource<'_> = Resource::new("", "v1", "persistentvolumeclaims");
/// Priority classes.
pub const PRIORITY_CLASSES: Resource<'_> = Resource::new("scheduling.k8s.io", "v1", "priorityclasses");
/// Storage classes.
pub const STORAGE_CLASSES: Resource<'_> = Resource::new("storage.k8s.io", "v1", "storageclasses");
/// Ingress classes.
pub const INGRESS_CLASSES: Resource<'_> = Resource::new("networking.k8s.io", "v1", "ingressclasses");
/// Runtime classes.
pub const RUNTIME_CLASSES: Resource<'_> = Resource::new("node.k8s.io", "v1", "runtimeclasses");

/// Reads objects for plugins.
#[async_trait]
pub trait Listers: fmt::Debug + Send + Sync {
    /// Reads the newest version of an object. For objects of which there may be many.
    async fn get(
        &self,
        resource: Resource<'_>,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<Value>>, Status>;

    /// Returns all objects of a resource, from memory. The first call loads them and follows the store from then on;
    /// a write through this server is in the snapshot before it is answered. For resources with few objects.
    async fn list(&self, resource: Resource<'_>) -> Result<Arc<Snapshot>, Status>;

    /// Reads the objects of a resource in one namespace from the store. For rare questions.
    async fn list_namespace(
        &self,
        resource: Resource<'_>,
        namespace: &str,
    ) -> Result<Vec<Arc<Value>>, Status>;

    /// Returns all objects of a resource if they are loaded, without waiting.
    fn loaded(&self, resource: Resource<'_>) -> Option<Arc<Snapshot>>;

    /// Returns the resource that serves a kind, and true if it is namespaced.
    fn resource_of(&self, group: &str, version: &str, kind: &str) -> Option<(GroupVersionResource, bool)>;
}

/// Object by `namespace/name`, or `name` for one of the cluster.
type Objects = OrdMap<Arc<str>, Arc<Value>>;

/// All objects of a resource at a revision.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    objects: Objects,
    revision: i64,
}

impl Snapshot {
    /// Returns the revision up to which changes are in the snapshot. Two snapshots of a resource with one revision are
    /// the same.
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// Returns true if there are no objects.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Returns an object.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<Value>> {
        match namespace {
            "" => self.objects.get(name),
            namespace => self.objects.get(format!("{namespace}/{name}").as_str()),
        }
    }

    /// Returns the objects of a namespace, by name.
    pub fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = &Arc<Value>> {
        let prefix: Arc<str> = format!("{namespace}/").into();
        let range = self.objects.range(prefix.clone()..);
        range.take_while(move |(key, _)| key.starts_with(&*prefix)).map(|(_, object)| object)
    }

    /// Returns all objects, by namespace and name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Value>> {
        self.objects.values()
    }

    /// Inserts an object, or removes it. `key` is `namespace/name`, or `name` for one of the cluster.
    pub fn apply(&mut self, key: &str, object: Option<Value>) {
        match object {
            Some(object) => self.objects.insert(key.into(), Arc::new(object)),
            None => self.objects.remove(key),
        };
    }

    /// Removes all objects.
    pub fn clear(&mut self) {
        self.objects.clear();
    }

    /// Sets the revision.
    pub fn at(&mut self, revision: i64) {
        self.revision = revision;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_found_by_namespace_and_name() {
        let mut snapshot = Snapshot::default();
        for key in ["a/x", "a/y", "ab/x", "b/x"] {
            snapshot.apply(key, Some(json!(key)));
        }
        let all: Vec<&Value> = snapshot.in_namespace("a").map(|object| &**object).collect();
        assert_eq!(all, [&json!("a/x"), &json!("a/y")]);
        assert!(snapshot.get("ab", "x").is_some());
        assert!(snapshot.get("ab", "y").is_none());
        snapshot.apply("a/x", None);
        assert_eq!(snapshot.in_namespace("a").count(), 1);
    }
}
