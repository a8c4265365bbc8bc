//! Create: sets uid, creation time and generation, and drops the status.

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
    pub(crate) async fn create(&self, request: wire::WriteRequest) -> Result<wire::EncodedObject, Error> {
        let sent = self.object_of(request)?;
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
                    "uid": random_uid(),
                    "generation": 1,
                    "creationTimestamp": now(),
                },
            }),
            revision: 0,
        };
        for (field, map) in [("labels", &meta.labels), ("annotations", &meta.annotations)] {
            if let Some(map) = wire::string_map(map) {
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
        self.encode_written(&key, &object)
    }

    /// Returns the object of a request, after checking its kind and version if it has them.
    pub(super) fn object_of(&self, request: wire::WriteRequest) -> Result<wire::Object, Error> {
        let object = request.object.ok_or_else(|| Error::BadRequest("the request has no object".into()))?;
        if let Some(type_meta) = &object.type_meta {
            let (kind, api_version) = (self.kind.kind, self.kind.api_version());
            if !type_meta.kind.is_empty() && type_meta.kind != kind {
                return Err(Error::BadRequest(format!("kind {:?} is not {kind:?}", type_meta.kind)));
            }
            if !type_meta.api_version.is_empty() && type_meta.api_version != api_version {
                return Err(Error::BadRequest(format!(
                    "api version {:?} is not {api_version:?}",
                    type_meta.api_version
                )));
            }
        }
        Ok(object)
    }
}

/// Returns a random UUID (version 4).
fn random_uid() -> String {
    let random: u128 = rand::rng().random();
    let bits = random & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    #[test]
    fn uid_is_a_random_uuid() {
        let uid = super::random_uid();
        let lengths: Vec<_> = uid.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{uid}");
        assert_eq!(&uid[14..15], "4", "{uid}");
        assert!(matches!(&uid[19..20], "8" | "9" | "a" | "b"), "{uid}");
        assert_ne!(uid, super::random_uid());
    }
}
