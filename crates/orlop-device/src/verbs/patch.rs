//! Patch: JSON patch (RFC 6902) and merge patch (RFC 7386), as Kubernetes applies them.
//!
//! A patch applies to the object as Get returns it, with its resource version, so that it can test for it. A patch that
//! leaves another version is a conflict, as in an update.

use orlop_api::{
    decode, object_meta,
    patch::{JsonPatch, PatchError, merge_patch},
};
use serde_json::Value;

use crate::{error::Error, object::Object, resource::Resource, shape::Part, wire};

/// A parsed patch.
enum Patch {
    Json(JsonPatch),
    Merge(Value),
}

impl Resource {
    pub(crate) async fn patch(&self, request: wire::PatchRequest) -> Result<wire::EncodedObject, Error> {
        let key = self.key(request.namespace.as_deref(), &request.name)?;
        let parsed = parse(&request.patch_type, &request.data)?;
        let part = match request.subresources.as_slice() {
            [] => Part::Spec,
            all if all.iter().all(|name| name == "status") => Part::Status,
            [other, ..] => return Err(Error::BadRequest(format!("subresource {other:?} is unknown"))),
        };
        let change = |current: &Object| {
            let mut readable = current.clone();
            let version = self.versions.text(current.revision);
            readable.meta_mut().insert("resourceVersion".into(), version.as_str().into());
            let wanted = Object { value: apply(&readable.value, &parsed)?, revision: 0 };
            let asked = object_meta::text(wanted.meta(), "resourceVersion");
            if !asked.is_empty() && asked != version {
                return Err(self.conflict(&key, "the object has been modified; read it again and retry"));
            }
            self.merge(current, &wanted, part, Error::Unprocessable)
        };
        self.encode_written(&key, &self.modify(&key, None, change).await?)
    }
}

fn parse(patch_type: &str, data: &[u8]) -> Result<Patch, Error> {
    let invalid = |error: PatchError| Error::BadRequest(format!("invalid patch: {error}"));
    match patch_type {
        "application/json-patch+json" => JsonPatch::decode(data).map(Patch::Json).map_err(invalid),
        "application/merge-patch+json" => {
            let patch = decode::json(data).map_err(|error| invalid(error.into()))?.value;
            if !patch.is_object() {
                return Err(Error::BadRequest("invalid patch: it must be an object".into()));
            }
            Ok(Patch::Merge(patch))
        }
        other => Err(Error::UnsupportedPatch(other.to_owned())),
    }
}

fn apply(object: &Value, patch: &Patch) -> Result<Value, Error> {
    let applied = match patch {
        Patch::Json(patch) => patch.apply(object),
        Patch::Merge(patch) => merge_patch(object, patch),
    };
    let document = applied.map_err(|error| Error::Unprocessable(error.to_string()))?;
    if !document.is_object() || !document.get("metadata").is_some_and(Value::is_object) {
        return Err(Error::Unprocessable("the result of the patch is not an object with metadata".into()));
    }
    Ok(document)
}
