//! Look-up of an object's dependents.

use orlop_client::{ResourceExt, api::ListParams};
use serde::Deserialize;

use super::{Collector, object::ObjectReference, stream::Coverage};
use crate::{discovery::Resource, status::is_not_found};

/// Response of an Orlop server's index of owners.
#[derive(Debug, Deserialize)]
struct DependentList {
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
    /// Returns every object with an owner of this uid: from the server's index, and from a list of each
    /// resource that the index does not cover.
    pub(super) async fn dependents(&self, uid: &str) -> orlop_client::Result<Vec<ObjectReference>> {
        let mut found = match self.coverage() {
            Coverage::None => Vec::new(),
            Coverage::AllExcept(_) => self.dependents_in_index(uid).await?,
        };
        for resource in self.uncovered_resources().await? {
            self.dependents_in_list(&resource, uid, &mut found).await?;
        }
        Ok(found)
    }

    pub(super) async fn has_dependents(&self, uid: &str) -> orlop_client::Result<bool> {
        Ok(!self.dependents(uid).await?.is_empty())
    }

    async fn dependents_in_index(&self, uid: &str) -> orlop_client::Result<Vec<ObjectReference>> {
        let found: DependentList = self.get_orlop(&format!("/orlop/v1/dependents?uid={uid}")).await?;
        let reference = |dependent: Dependent| ObjectReference {
            api_version: dependent.api_version,
            kind: dependent.kind,
            namespace: dependent.namespace,
            name: dependent.name,
            uid: dependent.uid,
        };
        Ok(found.items.into_iter().map(reference).collect())
    }

    async fn dependents_in_list(
        &self,
        resource: &Resource,
        uid: &str,
        found: &mut Vec<ObjectReference>,
    ) -> orlop_client::Result<()> {
        let listed = resource.objects(&self.client, None).list(&ListParams::default()).await;
        let list = match listed {
            Err(error) if is_not_found(&error) => return Ok(()),
            list => list?,
        };
        let owned =
            list.items.iter().filter(|object| object.owner_references().iter().any(|owner| owner.uid == uid));
        found.extend(owned.map(|object| ObjectReference::of(resource.type_of(), object)));
        Ok(())
    }
}
