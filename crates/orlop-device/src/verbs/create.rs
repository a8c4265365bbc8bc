//! Create: the server chooses uid, time and generation, and begins without a status.

use orlop_api::field_error::{FieldError, FieldPath};
use orlop_store::Txn;
use rand::Rng;
use serde_json::json;

use crate::{
    error::Error,
    object::{Object, now},
    resource::Resource,
    shape::Part,
    wire,
};

impl Resource {
    pub(crate) async fn create(&self, request: wire::WriteRequest) -> Result<wire::Made, Error> {
        let sent = self.sent(request)?;
        let meta = sent.object_meta.unwrap_or_default();
        let key = self.key(meta.namespace.as_deref(), meta.name())?;
        if !meta.resource_version().is_empty() {
            let path = FieldPath::root("metadata").child("resourceVersion");
            let errors = vec![FieldError::forbidden(&path, "must not be set on objects to be created")];
            return Err(Error::Invalid { kind: self.kind.kind, name: key.name, errors });
        }
        let mut object = Object {
            value: json!({
                "apiVersion": self.kind.api_version(),
                "kind": self.kind.kind,
                "metadata": {
                    "name": key.name,
                    "namespace": key.namespace,
                    "uid": uid(),
                    "generation": 1,
                    "creationTimestamp": now(),
                },
            }),
            revision: 0,
        };
        for (field, map) in [("labels", &meta.labels), ("annotations", &meta.annotations)] {
            if let Some(map) = wire::text_map(map) {
                object.meta_mut().insert(field.to_owned(), map);
            }
        }
        let spec = self.shape.decode(Part::Spec, sent.spec.unwrap_or_default()).map_err(Error::BadRequest)?;
        object.set_part(Part::Spec.name(), spec);
        self.validate(&object)?;
        let result = self.store.txn(Txn::create(Self::put(&key, &object))).await?;
        if !result.succeeded {
            return Err(self.already_exists(&key));
        }
        object.revision = result.revision;
        self.made(&key, &object)
    }

    /// The object of a request, which must be of this kind if it says of which it is.
    pub(super) fn sent(&self, request: wire::WriteRequest) -> Result<wire::Object, Error> {
        let object = request.object.ok_or_else(|| Error::BadRequest("the request has no object".into()))?;
        if let Some(said) = &object.type_meta {
            let (kind, api_version) = (self.kind.kind, self.kind.api_version());
            if !said.kind.is_empty() && said.kind != kind {
                return Err(Error::BadRequest(format!("kind {:?} is not {kind:?}", said.kind)));
            }
            if !said.api_version.is_empty() && said.api_version != api_version {
                return Err(Error::BadRequest(format!(
                    "api version {:?} is not {api_version:?}",
                    said.api_version
                )));
            }
        }
        Ok(object)
    }
}

/// A random UUID (version 4).
fn uid() -> String {
    let random: u128 = rand::rng().random();
    let bits = random & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    #[test]
    fn uids_are_random_uuids() {
        let uid = super::uid();
        let lengths: Vec<_> = uid.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{uid}");
        assert_eq!(&uid[14..15], "4", "{uid}");
        assert!(matches!(&uid[19..20], "8" | "9" | "a" | "b"), "{uid}");
        assert_ne!(uid, super::uid());
    }
}
