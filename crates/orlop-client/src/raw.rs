//! Objects as they arrive: a JSON value, and the metadata that watches need.

use std::borrow::Cow;

use kube::{
    Resource,
    api::ObjectMeta,
    core::{ApiResource, DynamicResourceScope},
};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// An object of any kind, or only its metadata.
#[derive(Clone, Debug)]
pub(crate) struct Raw<const METADATA: bool> {
    /// Name, namespace and resourceVersion.
    metadata: ObjectMeta,
    /// The whole object.
    pub(crate) value: Value,
}

impl<'de, const METADATA: bool> Deserialize<'de> for Raw<METADATA> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let text = |field: &str| value.get("metadata")?.get(field)?.as_str().map(str::to_owned);
        let metadata = ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        };
        Ok(Self { metadata, value })
    }
}

impl<const METADATA: bool> Resource for Raw<METADATA> {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.kind)
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.group)
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.version)
    }

    fn api_version(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.api_version)
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.plural)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }

    fn metadata_api() -> bool {
        METADATA
    }
}
