//! The API server as this crate sees it: objects of any kind as JSON.

use std::collections::BTreeMap;

use futures_util::StreamExt as _;
use orlop_client::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    core::{ApiResource, DynamicObject, PartialObjectMeta},
    watch_kind,
    watcher::{Config, Event},
};
use serde_json::Value;

/// Manager of the fields that the controllers write.
pub(crate) const MANAGER: &str = "orlop-aws";

/// A kind as the API server knows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) version: &'static str,
    pub(crate) kind: String,
    pub(crate) plural: String,
    pub(crate) namespaced: bool,
}

impl Resource {
    pub(crate) fn new(
        group: &str,
        version: &'static str,
        (kind, plural): (&str, &str),
        namespaced: bool,
    ) -> Self {
        Self {
            group: group.to_owned(),
            version,
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            namespaced,
        }
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    fn described(&self) -> ApiResource {
        ApiResource {
            group: self.group.clone(),
            version: self.version.to_owned(),
            api_version: self.api_version(),
            kind: self.kind.clone(),
            plural: self.plural.clone(),
        }
    }
}

/// Metadata of an object.
pub(crate) type Metadata = PartialObjectMeta<DynamicObject>;

/// A client of objects of any kind.
#[derive(Clone)]
pub(crate) struct Cluster {
    client: Client,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}

impl Cluster {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    fn api(&self, resource: &Resource, namespace: &str) -> Api<DynamicObject> {
        let described = resource.described();
        match resource.namespaced && !namespace.is_empty() {
            true => Api::namespaced_with(self.client.clone(), namespace, &described),
            false => Api::all_with(self.client.clone(), &described),
        }
    }

    /// Reads an object; `None` if it, or its kind, is not there.
    pub(crate) async fn get(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> orlop_client::Result<Option<Value>> {
        match self.api(resource, namespace).get(name).await {
            Ok(object) => serde_json::to_value(object).map(Some).map_err(orlop_client::Error::SerdeError),
            Err(orlop_client::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn list(
        &self,
        resource: &Resource,
        namespace: &str,
    ) -> orlop_client::Result<Vec<Value>> {
        let list = match self.api(resource, namespace).list(&ListParams::default()).await {
            Ok(list) => list,
            Err(orlop_client::Error::Api(status)) if status.code == 404 => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        list.items
            .into_iter()
            .map(|item| serde_json::to_value(item).map_err(orlop_client::Error::SerdeError))
            .collect()
    }

    /// Merges a patch into an object.
    pub(crate) async fn merge(
        &self,
        resource: &Resource,
        (namespace, name): (&str, &str),
        patch: &Value,
    ) -> orlop_client::Result<Value> {
        let options = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let merged = self.api(resource, namespace).patch(name, &options, &Patch::Merge(patch)).await?;
        serde_json::to_value(merged).map_err(orlop_client::Error::SerdeError)
    }

    /// Merges a patch into the status of an object.
    pub(crate) async fn merge_status(
        &self,
        resource: &Resource,
        (namespace, name): (&str, &str),
        patch: &Value,
    ) -> orlop_client::Result<()> {
        let options = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        self.api(resource, namespace).patch_status(name, &options, &Patch::Merge(patch)).await.map(drop)
    }

    /// Applies an object server-side, as the owner of its fields.
    pub(crate) async fn apply(
        &self,
        resource: &Resource,
        (namespace, name): (&str, &str),
        object: &Value,
    ) -> orlop_client::Result<Value> {
        self.apply_with(resource, (namespace, name), object, &PatchParams::apply(MANAGER).force()).await
    }

    /// Applies an object server-side under a manager of its own. A field that another manager owns is a conflict.
    pub(crate) async fn apply_unforced(
        &self,
        resource: &Resource,
        place: (&str, &str),
        object: &Value,
        manager: &str,
    ) -> orlop_client::Result<Value> {
        self.apply_with(resource, place, object, &PatchParams::apply(manager)).await
    }

    async fn apply_with(
        &self,
        resource: &Resource,
        (namespace, name): (&str, &str),
        object: &Value,
        options: &PatchParams,
    ) -> orlop_client::Result<Value> {
        let applied = self.api(resource, namespace).patch(name, options, &Patch::Apply(object)).await?;
        serde_json::to_value(applied).map_err(orlop_client::Error::SerdeError)
    }

    /// Deletes an object. One that is gone is deleted.
    pub(crate) async fn delete(
        &self,
        resource: &Resource,
        (namespace, name): (&str, &str),
    ) -> orlop_client::Result<()> {
        match self.api(resource, namespace).delete(name, &DeleteParams::default()).await {
            Err(orlop_client::Error::Api(status)) if status.code == 404 => Ok(()),
            other => other.map(drop),
        }
    }

    /// Watches metadata of a kind for ever: every object first, then every change.
    pub(crate) async fn watch(&self, resource: &Resource, handle: impl Fn(Change)) {
        let described = resource.described();
        let api: Api<Metadata> = Api::all_with(self.client.clone(), &described);
        let mut events = watch_kind(&api, Config::default());
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Apply(object) | Event::InitApply(object)) => handle(Change::of(&object, false)),
                Ok(Event::Delete(object)) => handle(Change::of(&object, true)),
                Ok(Event::Init | Event::InitDone) => {}
                Err(error) => tracing::debug!(%error, kind = resource.kind, "watch will be tried again"),
            }
        }
    }
}

/// A change of an object's metadata.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) gone: bool,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) labels: BTreeMap<String, String>,
    /// Equal as long as nothing that asks for a pass has changed: status and fields of managers are left out.
    pub(crate) fingerprint: u64,
}

impl Change {
    fn of(object: &Metadata, gone: bool) -> Self {
        use std::hash::{DefaultHasher, Hash as _, Hasher as _};
        let metadata = &object.metadata;
        let annotations = metadata.annotations.clone().unwrap_or_default();
        let labels = metadata.labels.clone().unwrap_or_default();
        let mut hasher = DefaultHasher::new();
        (metadata.generation, &metadata.uid, &labels).hash(&mut hasher);
        metadata.deletion_timestamp.is_some().hash(&mut hasher);
        // What the controllers note themselves asks for nothing.
        let own = |key: &str| OWN_ANNOTATIONS.contains(&key);
        for (key, value) in annotations.iter().filter(|(key, _)| !own(key)) {
            (key, value).hash(&mut hasher);
        }
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            gone,
            annotations,
            labels,
            fingerprint: hasher.finish(),
        }
    }
}

/// Annotations that the controllers write for themselves.
const OWN_ANNOTATIONS: &[&str] = &[
    "services.k8s.aws/identity",
    "s3.services.k8s.aws/set",
    "lambda.services.k8s.aws/code",
    "lambda.services.k8s.aws/extras",
    "apigatewayv2.services.k8s.aws/body",
    "dynamodb.services.k8s.aws/resource-policy",
];

/// Returns a text of an object by its JSON pointer.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    object.pointer(pointer).and_then(Value::as_str)
}

/// Returns the merge patch that makes `new` of `old`; `None` if they are the same.
pub(crate) fn merge_patch(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return Some(new.clone()) };
    let mut patch = serde_json::Map::new();
    for (key, value) in new {
        match old.get(key) {
            None => {
                patch.insert(key.clone(), value.clone());
            }
            Some(known) => {
                if let Some(inner) = merge_patch(known, value) {
                    patch.insert(key.clone(), inner);
                }
            }
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    Some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::merge_patch;

    #[test]
    fn merge_patch_changes_adds_and_removes() {
        let old = json!({"a": 1, "b": {"c": 1, "d": 2}, "e": [1]});
        let new = json!({"a": 1, "b": {"c": 3}, "e": [1, 2], "f": true});
        assert_eq!(merge_patch(&old, &new), Some(json!({"b": {"c": 3, "d": null}, "e": [1, 2], "f": true})));
        assert_eq!(merge_patch(&old, &old), None);
    }
}
