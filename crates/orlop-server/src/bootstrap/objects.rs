//! Objects that every cluster has: read together, and created where they are missing.
//!
//! A later start only reads: objects whose names share a prefix such as `system:` are one range of the store. Missing
//! ones are created concurrently, so that they share a group commit. They are defaulted, admitted and validated as
//! those of a client, without the filters of a request.

use std::{collections::HashMap, sync::Arc};

use futures_util::future::try_join_all;
use http::HeaderMap;
use orlop_api::{group_version::GroupVersionKind, object_meta, status::Status};
use orlop_store::{KeyRange, Read};
use serde_json::Value;

use super::BootstrapError;
use crate::{
    auth::User,
    chain::Chain,
    endpoints::{self, Request},
    http::{negotiation::Negotiated, query::Query, warnings::Warnings},
    registry::{Found, Kind},
    request::{Attributes, Verb},
    storage::{ObjectStore, status_from_store_error},
};

/// The user and field manager of these objects.
const USER: &str = "system:apiserver";
const MANAGER: &str = "orlop";

/// An object that must exist.
#[derive(Debug)]
pub(super) struct Expected<'a> {
    pub(super) object: &'a Value,
    kind: Arc<Kind>,
    key: String,
}

impl<'a> Expected<'a> {
    fn new(objects: &ObjectStore, object: &'a Value) -> Result<Self, BootstrapError> {
        let gvk = GroupVersionKind::of(object);
        let kind = objects.registry.kinds().serving(&gvk).cloned();
        let kind = kind.ok_or(BootstrapError::NotServed(gvk.kind))?;
        let meta = object_meta::of(object);
        let key = objects.key(&kind, object_meta::text(meta, "namespace"), object_meta::text(meta, "name"));
        Ok(Self { object, kind, key })
    }

    /// Returns the path of the object.
    pub(super) fn path(&self) -> String {
        format!("{}/{}", self.collection(), object_meta::text(object_meta::of(self.object), "name"))
    }

    fn collection(&self) -> String {
        let gvk = &self.kind.gvk;
        let root = if gvk.group.is_empty() { "/api" } else { "/apis" };
        let namespace = object_meta::text(object_meta::of(self.object), "namespace");
        let scope = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
        format!("{root}/{}{scope}/{}", gvk.api_version(), self.kind.resource)
    }

    /// Reads the object from the store.
    pub(super) async fn find(&self, chain: &Chain) -> Result<Option<Found>, BootstrapError> {
        let meta = object_meta::of(self.object);
        let (namespace, name) = (object_meta::text(meta, "namespace"), object_meta::text(meta, "name"));
        let found = chain.cluster().objects.find(&self.kind, namespace, name).await;
        found.map_err(|status| self.failed(&status))
    }

    /// Decodes a stored version.
    pub(super) async fn read(&self, found: &Found) -> Result<Value, BootstrapError> {
        self.kind.read(found).await.map_err(|status| self.failed(&status))
    }

    /// Creates the object. Returns false if it exists by now.
    pub(super) async fn create(&self, chain: &Chain) -> Result<bool, BootstrapError> {
        let meta = object_meta::of(self.object);
        let gvk = &self.kind.gvk;
        let attributes = Attributes {
            user: Arc::new(User::master(USER)),
            verb: Verb::Create,
            is_resource_request: true,
            group: gvk.group.clone(),
            version: gvk.version.clone(),
            resource: self.kind.resource.clone(),
            namespace: object_meta::text(meta, "namespace").to_owned(),
            ..Attributes::default()
        };
        let request = Request {
            cluster: chain.cluster().clone(),
            kind: self.kind.clone(),
            attributes: attributes.into(),
            query: Query::default(),
            method: http::Method::default(),
            uri: http::Uri::default(),
            headers: HeaderMap::new(),
            body: bytes::Bytes::new(),
            negotiated: Negotiated::default(),
            warnings: Warnings::default(),
            audit: None,
            deadline: None,
            upgrade: None,
        };
        endpoints::create_missing(&request, self.object.clone(), MANAGER)
            .await
            .map_err(|status| self.failed(&status))
    }

    fn failed(&self, status: &Status) -> BootstrapError {
        BootstrapError::Object { path: self.path(), message: status.message.clone() }
    }
}

/// Reads objects. Returns each with its stored version, if there is one.
pub(super) async fn find<'a>(
    chain: &Chain,
    objects: impl IntoIterator<Item = &'a Value>,
) -> Result<Vec<(Expected<'a>, Option<Found>)>, BootstrapError> {
    let store = &chain.cluster().objects;
    let expected = objects.into_iter().map(|object| Expected::new(store, object));
    let expected = expected.collect::<Result<Vec<_>, _>>()?;
    let mut ranges: HashMap<String, Vec<&str>> = HashMap::new();
    for Expected { key, .. } in &expected {
        ranges.entry(shared_prefix(key).to_owned()).or_default().push(key);
    }
    let reads = ranges.into_iter().map(|(prefix, keys)| async move {
        let range = match *keys {
            [key] => KeyRange::key(key.to_owned()),
            _ => KeyRange::prefix(prefix),
        };
        store.store.read(Read::new(range)).await
    });
    let read = try_join_all(reads)
        .await
        .map_err(|error| BootstrapError::Read(status_from_store_error(&error).message))?;
    let mut found: HashMap<bytes::Bytes, Found> =
        read.into_iter().flat_map(|read| read.kvs).map(|kv| (kv.key.clone(), Found::from(kv))).collect();
    Ok(expected
        .into_iter()
        .map(|expected| {
            let stored = found.remove(expected.key.as_bytes());
            (expected, stored)
        })
        .collect())
}

/// Returns the part of a key that the objects of one system share: up to the colon of a name, or else all of it. There
/// may be very many other objects in a collection.
fn shared_prefix(key: &str) -> &str {
    let name = key.rfind('/').map_or(0, |slash| slash + 1);
    match key[name..].find(':') {
        Some(colon) => &key[..name + colon + 1],
        None => key,
    }
}

/// Creates those of the objects that do not exist. Their namespaces must exist.
pub(super) async fn create_missing<'a>(
    chain: &Chain,
    objects: impl IntoIterator<Item = &'a Value>,
) -> Result<(), BootstrapError> {
    let found = find(chain, objects).await?;
    let missing = found.iter().filter(|(_, stored)| stored.is_none());
    // Concurrent creates share a group commit.
    try_join_all(missing.map(|(expected, _)| expected.create(chain))).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::shared_prefix;

    #[test]
    fn system_objects_of_a_collection_are_one_range() {
        let role = "/registry/rbac.authorization.k8s.io/clusterroles/system:node";
        assert_eq!(shared_prefix(role), "/registry/rbac.authorization.k8s.io/clusterroles/system:");
        let controller = "/registry/x/roles/kube-system/system:controller:token-cleaner";
        assert_eq!(shared_prefix(controller), "/registry/x/roles/kube-system/system:");
        assert_eq!(shared_prefix("/registry/namespaces/default"), "/registry/namespaces/default");
    }
}
