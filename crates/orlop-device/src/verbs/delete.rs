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

/// How often an unconditional delete is tried again when a write comes in between.
const ATTEMPTS: usize = 32;

impl Resource {
    pub(crate) async fn delete(&self, request: wire::DeleteRequest) -> Result<(), Error> {
        let key = self.key(request.namespace.as_deref(), &request.name)?;
        let conditions = request.opts.unwrap_or_default().preconditions.unwrap_or_default();
        let expected = self.versions.parse(conditions.resource_version())?;
        for _ in 0..ATTEMPTS {
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
            // One that cannot be read has no uid to compare, but can still be removed.
            let object = Object::read(found).ok();
            let uid = object.as_ref().map_or("", |object| object_meta::text(object.meta(), "uid"));
            if !conditions.uid().is_empty() && conditions.uid() != uid {
                let why = format!(
                    "the uid in the precondition ({}) does not match that of the object ({uid})",
                    conditions.uid()
                );
                return Err(self.conflict(&key, why));
            }
            let txn = match object.and_then(marked) {
                Some(Marked::Already) => return Ok(()),
                Some(Marked::Now(object)) => Txn::replace(Self::put(&key, &object), found.revision),
                None => Txn::remove(key.bytes.clone(), found.revision),
            };
            if self.store.txn(txn).await?.succeeded {
                self.encoded.forget(&key.bytes);
                return Ok(());
            }
        }
        Err(self.busy(&key))
    }

    fn busy(&self, key: &Key) -> Error {
        self.conflict(key, "too many others write this object at the same time")
    }
}

/// An object that must not go yet.
enum Marked {
    Already,
    Now(Object),
}

/// Controllers that work through `orlop serve` can ask, with a finalizer, that an object wait for them; then
/// it is marked, and they remove it. `None` if it can go at once.
fn marked(mut object: Object) -> Option<Marked> {
    let meta = object.meta();
    if meta.get("finalizers").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        return None;
    }
    if meta.contains_key("deletionTimestamp") {
        return Some(Marked::Already);
    }
    object.meta_mut().insert("deletionTimestamp".into(), now().into());
    Some(Marked::Now(object))
}
