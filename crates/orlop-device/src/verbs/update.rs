//! Update and UpdateStatus.

use serde_json::Value;

use crate::{
    error::Error,
    object::Object,
    resource::Resource,
    shape::Part,
    wire::{self, text_map},
};

impl Resource {
    /// Spec, labels and annotations. What the request leaves out stays as it is.
    pub(crate) async fn update(&self, request: wire::WriteRequest) -> Result<wire::Made, Error> {
        self.write(request, Part::Spec).await
    }

    /// Status only, as a whole.
    pub(crate) async fn update_status(&self, request: wire::WriteRequest) -> Result<wire::Made, Error> {
        self.write(request, Part::Status).await
    }

    async fn write(&self, request: wire::WriteRequest, part: Part) -> Result<wire::Made, Error> {
        let sent = self.sent(request)?;
        let meta = sent.object_meta.unwrap_or_default();
        let key = self.key(meta.namespace.as_deref(), meta.name())?;
        let expected = self.versions.parse(meta.resource_version())?;
        let value = match part {
            Part::Spec => sent.spec,
            Part::Status => {
                Some(sent.status.ok_or_else(|| Error::BadRequest("status: Required value".into()))?)
            }
        };
        let value = match value {
            Some(bytes) => Some(self.shape.decode(part, bytes).map_err(Error::BadRequest)?),
            None => None,
        };
        let labels = text_map(&meta.labels);
        let annotations = text_map(&meta.annotations);
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
            self.next(current, &wanted, part, Error::BadRequest)
        };
        self.made(&key, &self.modify(&key, expected, change).await?)
    }
}
