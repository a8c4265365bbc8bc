//! What depends on an object.

use kube::{ResourceExt, api::ListParams};
use serde::Deserialize;

use super::{Collector, everything::Coverage, item::Item};
use crate::{discovered::Resource, retry::is_missing};

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
    /// Every object that names this uid as an owner: from the server's index, and kind by kind where it has none.
    pub(super) async fn dependents(&self, uid: &str) -> kube::Result<Vec<Item>> {
        let mut found = match self.coverage() {
            Coverage::Nothing => Vec::new(),
            Coverage::AllBut(_) => self.ask_index(uid).await?,
        };
        for resource in self.one_by_one().await? {
            self.ask_list(&resource, uid, &mut found).await?;
        }
        Ok(found)
    }

    pub(super) async fn has_dependents(&self, uid: &str) -> kube::Result<bool> {
        Ok(!self.dependents(uid).await?.is_empty())
    }

    /// One question, over all kinds.
    async fn ask_index(&self, uid: &str) -> kube::Result<Vec<Item>> {
        let found: Found = self.own_page(&format!("/orlop/v1/dependents?uid={uid}")).await?;
        let item = |dependent: Dependent| Item {
            api_version: dependent.api_version,
            kind: dependent.kind,
            namespace: dependent.namespace,
            name: dependent.name,
            uid: dependent.uid,
        };
        Ok(found.items.into_iter().map(item).collect())
    }

    async fn ask_list(&self, resource: &Resource, uid: &str, found: &mut Vec<Item>) -> kube::Result<()> {
        let listed = resource.objects(&self.client, None).list_metadata(&ListParams::default()).await;
        let list = match listed {
            Err(error) if is_missing(&error) => return Ok(()),
            list => list?,
        };
        let owned =
            list.items.iter().filter(|object| object.owner_references().iter().any(|owner| owner.uid == uid));
        found.extend(owned.map(|object| Item::of(resource.type_of(), object)));
        Ok(())
    }
}
