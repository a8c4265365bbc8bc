//! What depends on an object.

use http::Request;
use kube::{ResourceExt, api::ListParams};
use serde::Deserialize;

use super::{Collector, item::Item};
use crate::retry::is_missing;

/// The answer of an Orlop server's index.
#[derive(Debug, Deserialize)]
struct Found {
    items: Vec<Dependent>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Dependent {
    api_version: String,
    kind: String,
    #[serde(default)]
    namespace: Option<String>,
    name: String,
    uid: String,
}

impl Collector {
    /// Every object that names this uid as an owner.
    pub(super) async fn dependents(&self, uid: &str) -> kube::Result<Vec<Item>> {
        match self.ask_index(uid).await {
            Err(error) if is_missing(&error) => self.ask_lists(uid).await,
            found => found,
        }
    }

    pub(super) async fn has_dependents(&self, uid: &str) -> kube::Result<bool> {
        Ok(!self.dependents(uid).await?.is_empty())
    }

    /// One question, over all kinds.
    async fn ask_index(&self, uid: &str) -> kube::Result<Vec<Item>> {
        let request = Request::get(format!("/orlop/v1/dependents?uid={uid}"))
            .body(Vec::new())
            .map_err(kube::Error::HttpError)?;
        let found: Found = self.client.request(request).await?;
        let item = |dependent: Dependent| Item {
            api_version: dependent.api_version,
            kind: dependent.kind,
            namespace: dependent.namespace,
            name: dependent.name,
            uid: dependent.uid,
        };
        Ok(found.items.into_iter().map(item).collect())
    }

    /// A server that has no such index is asked kind by kind.
    async fn ask_lists(&self, uid: &str) -> kube::Result<Vec<Item>> {
        let resources: Vec<_> = self
            .resources
            .read()
            .await
            .iter()
            .filter(|resource| resource.is_collectable())
            .cloned()
            .collect();
        let mut found = Vec::new();
        for resource in resources {
            let list = match resource.objects(&self.client, None).list_metadata(&ListParams::default()).await
            {
                Err(error) if is_missing(&error) => continue,
                list => list?,
            };
            let owned = list
                .items
                .iter()
                .filter(|object| object.owner_references().iter().any(|owner| owner.uid == uid));
            found.extend(owned.map(|object| Item::of(&resource, object)));
        }
        Ok(found)
    }
}
