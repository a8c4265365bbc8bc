//! Delete, with preconditions.

use orlop_api::object_meta;
use orlop_store::{KeyRange, Read, Txn};
use serde_json::Value;

use crate::{
    error::Error,
    object::{Object, now},
    resource::{Key, Resource},
    wire,
};

/// Attempts of an unconditional delete under concurrent writes.
const ATTEMPTS_MAX: usize = 32;

impl Resource {
    pub(crate) async fn delete(&self, request: wire::DeleteRequest) -> Result<(), Error> {
        let key = self.key(request.namespace.as_deref(), &request.name)?;
        let conditions = request.opts.unwrap_or_default().preconditions.unwrap_or_default();
        let expected = self.versions.parse(conditions.resource_version())?;
        for _ in 0..ATTEMPTS_MAX {
            let read = self.store.read(Read::new(KeyRange::key(key.bytes.clone()))).await?;
            let Some(found) = read.kvs.first() else { return Err(self.not_found(&key)) };
            if let Some(expected) = expected
                && expected != found.revision
            {
                let why = format!(
                    "the resource version in the precondition ({}) does not match that of the object ({})",
                    self.versions.text(expected),
                    self.versions.text(found.revision)
                );
                return Err(self.conflict(&key, why));
            }
            // A corrupt object has no uid, but can be deleted.
            let object = Object::read(found).ok();
            let uid = object.as_ref().map_or("", |object| object_meta::text(object.meta(), "uid"));
            if !conditions.uid().is_empty() && conditions.uid() != uid {
                let why = format!(
                    "the uid in the precondition ({}) does not match that of the object ({uid})",
                    conditions.uid()
                );
                return Err(self.conflict(&key, why));
            }
            let txn = match object.and_then(mark_for_deletion) {
                Some(Finalizing::AlreadyMarked) => return Ok(()),
                Some(Finalizing::Marked(object)) => Txn::replace(Self::put(&key, &object), found.revision),
                None => Txn::remove(key.bytes.clone(), found.revision),
            };
            if self.store.txn(txn).await?.succeeded {
                self.encoded.remove(&key.bytes);
                return Ok(());
            }
        }
        Err(self.contention(&key))
    }

    fn contention(&self, key: &Key) -> Error {
        self.conflict(key, "too many concurrent writes to this object")
    }
}

/// An object with finalizers.
enum Finalizing {
    AlreadyMarked,
    Marked(Object),
}

/// Sets the deletion timestamp of an object with finalizers, which controllers add through `orlop serve`. `None` if it has
/// none and can be deleted.
fn mark_for_deletion(mut object: Object) -> Option<Finalizing> {
    let meta = object.meta();
    if meta.get("finalizers").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        return None;
    }
    if meta.contains_key("deletionTimestamp") {
        return Some(Finalizing::AlreadyMarked);
    }
    object.meta_mut().insert("deletionTimestamp".into(), now().into());
    Some(Finalizing::Marked(object))
}
