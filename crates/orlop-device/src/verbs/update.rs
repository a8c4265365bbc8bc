//! Update and UpdateStatus.

use serde_json::Value;

use crate::{
    error::Error,
    object::Object,
    resource::Resource,
    shape::Part,
    wire::{self, string_map},
};

impl Resource {
    /// Updates spec, labels and annotations. Fields absent from the request keep their value.
    pub(crate) async fn update(&self, request: wire::WriteRequest) -> Result<wire::EncodedObject, Error> {
        self.write(request, Part::Spec).await
    }

    /// Replaces the status.
    pub(crate) async fn update_status(
        &self,
        request: wire::WriteRequest,
    ) -> Result<wire::EncodedObject, Error> {
        self.write(request, Part::Status).await
    }

    async fn write(&self, request: wire::WriteRequest, part: Part) -> Result<wire::EncodedObject, Error> {
        let object = self.object_of(request)?;
        let meta = object.object_meta.unwrap_or_default();
        let key = self.key(meta.namespace.as_deref(), meta.name())?;
        let expected = self.versions.parse(meta.resource_version())?;
        let value = match part {
            Part::Spec => object.spec,
            Part::Status => {
                Some(object.status.ok_or_else(|| Error::BadRequest("status: Required value".into()))?)
            }
        };
        let value = match value {
            Some(bytes) => Some(self.shape.decode(part, bytes).map_err(Error::BadRequest)?),
            None => None,
        };
        let labels = string_map(&meta.labels);
        let annotations = string_map(&meta.annotations);
        let change = |current: &Object| {
            let mut wanted = current.clone();
            let mut set = |field: &str, value: &Option<Value>| {
                if let Some(value) = value {
                    wanted.meta_mut().insert(field.to_owned(), value.clone());
                }
            };
            set("labels", &labels);
            set("annotations", &annotations);
            set("uid", &meta.uid.as_deref().filter(|uid| !uid.is_empty()).map(Value::from));
            if let Some(value) = &value {
                wanted.set_part(part.name(), value.clone());
            }
            self.merge(current, &wanted, part, Error::BadRequest)
        };
        self.encode_written(&key, &self.modify(&key, expected, change).await?)
    }
}
