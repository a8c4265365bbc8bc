//! Patch: JSON patch (RFC 6902) and merge patch (RFC 7386), as Kubernetes applies them.
//!
//! A patch sees the object as a Get shows it, resource version included, so that it can test for it; a
//! version that it leaves different from the object's is a conflict, like that of an update.

use orlop_api::{
    decode, object_meta,
    patch::{JsonPatch, PatchError, merge_patch},
};
use serde_json::Value;

use crate::{error::Error, object::Object, resource::Resource, shape::Part, wire};

/// A patch that has been read.
enum Parsed {
    Json(JsonPatch),
    Merge(Value),
}

impl Resource {
    pub(crate) async fn patch(&self, request: wire::PatchRequest) -> Result<wire::Made, Error> {
        let key = self.key(request.namespace.as_deref(), &request.name)?;
        let parsed = parse(&request.patch_type, &request.data)?;
        let part = match request.subresources.as_slice() {
            [] => Part::Spec,
            all if all.iter().all(|name| name == "status") => Part::Status,
            [other, ..] => return Err(Error::BadRequest(format!("subresource {other:?} is unknown"))),
        };
        let change = |current: &Object| {
            let mut seen = current.clone();
            let version = self.versions.text(current.revision);
            seen.meta_mut().insert("resourceVersion".into(), version.as_str().into());
            let wanted = Object { value: apply(&seen.value, &parsed)?, revision: 0 };
            let asked = object_meta::text(wanted.meta(), "resourceVersion");
            if !asked.is_empty() && asked != version {
                return Err(self.conflict(&key, "the object has been modified; read it again and retry"));
            }
            self.next(current, &wanted, part, Error::Unprocessable)
        };
        self.made(&key, &self.modify(&key, None, change).await?)
    }
}

fn parse(patch_type: &str, data: &[u8]) -> Result<Parsed, Error> {
    let invalid = |error: PatchError| Error::BadRequest(format!("the patch cannot be read: {error}"));
    match patch_type {
        "application/json-patch+json" => JsonPatch::decode(data).map(Parsed::Json).map_err(invalid),
        "application/merge-patch+json" => {
            let patch = decode::json(data).map_err(|error| invalid(error.into()))?.value;
            if !patch.is_object() {
                return Err(Error::BadRequest("the patch cannot be read: it must be an object".into()));
            }
            Ok(Parsed::Merge(patch))
        }
        other => Err(Error::UnsupportedPatch(other.to_owned())),
    }
}

fn apply(object: &Value, patch: &Parsed) -> Result<Value, Error> {
    let applied = match patch {
        Parsed::Json(patch) => patch.apply(object),
        Parsed::Merge(patch) => merge_patch(object, patch),
    };
    let document = applied.map_err(|error| Error::Unprocessable(error.to_string()))?;
    if !document.is_object() || !document.get("metadata").is_some_and(Value::is_object) {
        return Err(Error::Unprocessable("what the patch leaves is not an object with metadata".into()));
    }
    Ok(document)
}
