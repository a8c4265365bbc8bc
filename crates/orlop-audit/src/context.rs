//! Additions of a request's handlers to its event: objects, annotations, facts that the path does not tell.

use std::{
    borrow::Cow,
    sync::{Mutex, PoisonError},
};

use bytes::Bytes;
use orlop_api::{managed_fields::entries, object_meta};
use serde_json::Value;

use crate::{
    event::{Annotations, Event, ObjectFacts, TRUNCATED},
    policy::Verdict,
    stage::Level,
};

/// Bytes of one recorded object. A larger one is left out, and the event says so.
pub const OBJECT_BYTES_MAX: usize = 8 << 20;

/// Collects additions to the event of one request.
#[derive(Debug)]
pub struct Context {
    verdict: Verdict,
    /// `None` until something is added: nothing is to most reads.
    added: Mutex<Option<Box<Added>>>,
}

#[derive(Debug, Default)]
struct Added {
    object: ObjectFacts,
    request_object: Option<Bytes>,
    annotations: Annotations,
}

impl Context {
    /// Returns the context of a request.
    pub fn new(verdict: Verdict) -> Self {
        Self { verdict, added: Mutex::default() }
    }

    fn add(&self, add: impl FnOnce(&mut Added)) {
        add(self.added.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default());
    }

    /// Records the object of a request, decoded and with defaults.
    pub fn request_object(&self, object: &Value) {
        let metadata = object_meta::of(object);
        let text = |field| object_meta::text(metadata, field).to_owned();
        let facts = ObjectFacts {
            namespace: text("namespace"),
            name: text("name"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
        };
        let encoded = (self.verdict.level >= Level::Request).then(|| self.encode(object));
        self.add(|added| {
            added.object = facts;
            added.request_object = encoded;
        });
    }

    /// Records a patch, in JSON.
    pub fn request_patch(&self, patch: impl FnOnce() -> Option<Bytes>) {
        if self.verdict.level >= Level::Request
            && let Some(patch) = patch()
        {
            self.add(|added| added.request_object = Some(patch));
        }
    }

    /// Adds an annotation. The first value of a key stays.
    pub fn annotate(&self, key: impl Into<Cow<'static, str>>, value: impl Into<Cow<'static, str>>) {
        self.add(|added| added.annotations.add(key, value));
    }

    /// Returns true if the request's object is recorded.
    pub fn wants_request_object(&self) -> bool {
        self.verdict.level >= Level::Request
    }

    /// Returns true if the response's object is recorded.
    pub fn wants_response_object(&self) -> bool {
        self.verdict.level >= Level::RequestResponse
    }

    /// Encodes an object as it is recorded.
    pub fn encode(&self, object: &Value) -> Bytes {
        let encoded = match self.verdict.omit_managed_fields {
            true => {
                let mut object = object.clone();
                remove_managed_fields(&mut object);
                serde_json::to_vec(&object)
            }
            false => serde_json::to_vec(object),
        };
        // A `Value` always encodes.
        encoded.unwrap_or_default().into()
    }

    /// Returns true if JSON can be recorded as it is.
    pub fn keeps_managed_fields(&self) -> bool {
        !self.verdict.omit_managed_fields
    }

    /// Moves everything added so far to the event.
    pub(crate) fn complete(&self, event: &mut Event) {
        if let Some(added) = self.added.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let Added { object, request_object, annotations } = *added;
            event.object = object;
            if request_object.is_some() {
                event.request_object = request_object;
            }
            event.annotations.add_all(annotations);
        }
        for object in [&mut event.request_object, &mut event.response_object] {
            if object.as_ref().is_some_and(|object| object.len() > OBJECT_BYTES_MAX) {
                *object = None;
                event.annotations.add(TRUNCATED, "true");
            }
        }
    }
}

/// Removes the managed fields of an object, of a list's items, and of a table's rows.
fn remove_managed_fields(object: &mut Value) {
    entries::remove_from(object);
    for field in ["items", "rows"] {
        for item in object.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten() {
            let item = if field == "rows" { &mut item["object"] } else { item };
            if item.get("metadata").is_some() {
                entries::remove_from(item);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn context(level: Level, omit_managed_fields: bool) -> Context {
        Context::new(Verdict { level, omit_managed_fields, ..Verdict::default() })
    }

    #[test]
    fn managed_fields_are_left_out_of_objects_lists_and_tables() {
        let with = || json!({"metadata": {"name": "a", "managedFields": [{"manager": "x"}]}, "data": 1});
        let without = json!({"metadata": {"name": "a"}, "data": 1});
        let encoded = |object: Value| -> Value {
            serde_json::from_slice(&context(Level::Request, true).encode(&object)).unwrap()
        };
        assert_eq!(encoded(with()), without);
        assert_eq!(encoded(json!({"items": [with()]}))["items"], json!([without]));
        assert_eq!(encoded(json!({"rows": [{"object": with()}]}))["rows"][0]["object"], without);
        let kept: Value = serde_json::from_slice(&context(Level::Request, false).encode(&with())).unwrap();
        assert_eq!(kept, with());
    }

    #[test]
    fn metadata_level_records_facts_and_no_object() {
        let object = json!({"metadata": {"name": "a", "namespace": "b", "uid": "u", "resourceVersion": "5"}});
        let metadata = context(Level::Metadata, false);
        metadata.request_object(&object);
        metadata.request_patch(|| unreachable!("not recorded at level Metadata"));
        let added = metadata.added.lock().unwrap().take().unwrap();
        assert_eq!((added.object.name.as_str(), added.object.resource_version.as_str()), ("a", "5"));
        assert!(added.request_object.is_none());
    }
}
