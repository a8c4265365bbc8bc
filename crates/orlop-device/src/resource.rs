//! A kind on a store: keys, reads, and read-modify-write of objects.

use std::time::Duration;

use bytes::Bytes;
use orlop_api::{
    field_error::{FieldError, FieldPath},
    labels::Selector,
    names::{self, NameRule},
    object_meta::{self, MetaRules},
};
use orlop_device_client::api::TypeMeta;
use orlop_store::{KeyRange, KeyValue, Put, Read, Revision, Store, Txn};
use prost::Message;
use tokio::sync::watch;

use crate::{
    conditions,
    encoded::EncodedCache,
    error::Error,
    kinds::Kind,
    object::Object,
    selector,
    shape::{Part, Shape},
    versions::Versions,
    wire,
};

/// Namespace of an object that has none.
const DEFAULT_NAMESPACE: &str = "default";
/// Deadline of waiting for a revision that this process has not observed yet.
const REVISION_TIMEOUT: Duration = Duration::from_secs(3);
/// Attempts of an unconditional write under concurrent writes.
const ATTEMPTS_MAX: usize = 32;

/// A kind on a store.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) kind: &'static Kind,
    pub(crate) shape: Shape,
    pub(crate) store: Store,
    pub(crate) versions: Versions,
    /// Interval of bookmarks.
    pub(crate) bookmark_period: Duration,
    /// `true` on shutdown.
    pub(crate) stopping: watch::Receiver<bool>,
    pub(crate) encoded: EncodedCache,
}

/// The key of an object.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) bytes: Bytes,
}

impl Resource {
    // --- naming ---

    pub(crate) fn key(&self, namespace: Option<&str>, name: &str) -> Result<Key, Error> {
        let namespace = namespace.filter(|namespace| !namespace.is_empty()).unwrap_or(DEFAULT_NAMESPACE);
        let meta = FieldPath::root("metadata");
        let mut errors = Vec::new();
        if name.is_empty() {
            errors.push(FieldError::required(&meta.child("name"), ""));
        }
        for (field, value) in [("name", name), ("namespace", namespace)] {
            // A slash would reach into another namespace.
            let problems = names::path_segment(value);
            errors
                .extend(problems.into_iter().map(|why| FieldError::invalid(&meta.child(field), value, why)));
        }
        if !errors.is_empty() {
            return Err(Error::Invalid { kind: self.kind.kind, name: name.to_owned(), errors });
        }
        let bytes = format!("{}{namespace}/{name}", self.kind.prefix()).into();
        Ok(Key { namespace: namespace.to_owned(), name: name.to_owned(), bytes })
    }

    /// Returns the range of all objects, or of those in a namespace.
    pub(crate) fn range(&self, namespace: Option<&str>) -> Result<KeyRange, Error> {
        let prefix = self.kind.prefix();
        let Some(namespace) = namespace.filter(|namespace| !namespace.is_empty()) else {
            return Ok(KeyRange::prefix(prefix));
        };
        if let Some(why) = names::path_segment(namespace).into_iter().next() {
            return Err(Error::BadRequest(format!("namespace {namespace:?}: {why}")));
        }
        Ok(KeyRange::prefix(format!("{prefix}{namespace}/")))
    }

    fn plural(&self) -> String {
        format!("{}.{}", self.kind.plural, self.kind.group)
    }

    pub(crate) fn not_found(&self, key: &Key) -> Error {
        Error::NotFound { plural: self.plural(), name: key.name.clone() }
    }

    pub(crate) fn already_exists(&self, key: &Key) -> Error {
        Error::AlreadyExists { plural: self.plural(), name: key.name.clone() }
    }

    pub(crate) fn conflict(&self, key: &Key, why: impl Into<String>) -> Error {
        Error::Conflict { plural: self.plural(), name: key.name.clone(), why: why.into() }
    }

    // --- reading ---

    pub(crate) async fn stored(&self, key: &Key) -> Result<KeyValue, Error> {
        let read = self.store.read(Read::new(KeyRange::key(key.bytes.clone()))).await?;
        read.kvs.into_iter().next().ok_or_else(|| self.not_found(key))
    }

    /// Waits until reads return at least this revision.
    pub(crate) async fn wait_for(&self, revision: Option<Revision>) -> Result<(), Error> {
        let Some(revision) = revision else { return Ok(()) };
        match self.store.wait_for_revision(revision, REVISION_TIMEOUT).await {
            Err(orlop_store::Error::FutureRevision { requested, current }) => Err(Error::Expired(format!(
                "too large resource version: {}, current: {}: list again",
                self.versions.text(requested),
                self.versions.text(current)
            ))),
            other => Ok(other?),
        }
    }

    pub(crate) fn type_meta(&self, suffix: &str) -> TypeMeta {
        TypeMeta { kind: format!("{}{suffix}", self.kind.kind), api_version: self.kind.api_version() }
    }

    /// Encodes a stored version, if a selector matches it.
    pub(crate) fn encode_matching(&self, kv: &KeyValue, selector: &Selector) -> Result<Option<Bytes>, Error> {
        let everything = selector.is_everything();
        if everything && let Some(known) = self.encoded.get(&kv.key, kv.revision) {
            return Ok(Some(known));
        }
        let object = Object::read(kv)?;
        if !selector::matches(selector, &object) {
            return Ok(None);
        }
        let encoded = Bytes::from(self.to_message(&object)?.encode_to_vec());
        if everything {
            self.encoded.put(&kv.key, kv.revision, &encoded);
        }
        Ok(Some(encoded))
    }

    /// Encodes and caches the version that a write returns.
    pub(crate) fn encode_written(&self, key: &Key, object: &Object) -> Result<wire::EncodedObject, Error> {
        let encoded = Bytes::from(self.to_message(object)?.encode_to_vec());
        self.encoded.put(&key.bytes, object.revision, &encoded);
        Ok(wire::EncodedObject(encoded))
    }

    /// Converts an object to its message.
    pub(crate) fn to_message(&self, object: &Object) -> Result<wire::Object, Error> {
        let part = |part: Part| {
            let value = object.part(part.name());
            if value.is_null() {
                return Ok(None);
            }
            self.shape.encode(part, value).map(Some).map_err(|why| {
                tracing::error!(name = object.name(), why, "stored object does not match its kind's .proto");
                Error::Unreadable(object.name().to_owned())
            })
        };
        Ok(wire::Object {
            type_meta: Some(self.type_meta("")),
            object_meta: Some(wire::to_meta(object.meta(), self.versions.text(object.revision))),
            spec: part(Part::Spec)?,
            status: part(Part::Status)?,
        })
    }

    // --- writing ---

    pub(crate) fn put(key: &Key, object: &Object) -> Put {
        Put { terms: selector::terms(object.meta()), ..Put::new(key.bytes.clone(), object.bytes()) }
    }

    /// Validates an object before it is stored.
    pub(crate) fn validate(&self, object: &Object) -> Result<(), Error> {
        const RULES: MetaRules = MetaRules { namespaced: true, name: NameRule::Subdomain };
        let mut errors = object_meta::validate(object.meta(), RULES, &FieldPath::root("metadata"));
        errors.extend(conditions::validate(object.part("status")));
        errors.extend((self.kind.validate)(&object.value));
        if errors.is_empty() {
            return Ok(());
        }
        Err(Error::Invalid { kind: self.kind.kind, name: object.name().to_owned(), errors })
    }

    /// Updates an object by compare-and-swap: reads it, applies `change`, and writes the result if it differs. Retries on
    /// a concurrent write. `expected` is the caller's precondition on the revision.
    pub(crate) async fn modify(
        &self,
        key: &Key,
        expected: Option<Revision>,
        change: impl Fn(&Object) -> Result<Object, Error>,
    ) -> Result<Object, Error> {
        for _ in 0..ATTEMPTS_MAX {
            let current = Object::read(&self.stored(key).await?)?;
            if expected.is_some_and(|expected| expected != current.revision) {
                return Err(self.conflict(key, "the object has been modified; read it again and retry"));
            }
            let mut next = change(&current)?;
            if next.value == current.value {
                return Ok(current);
            }
            self.validate(&next)?;
            let revision = current.revision;
            // Freed while the write waits in the queue.
            drop(current);
            let result = self.store.txn(Txn::replace(Self::put(key, &next), revision)).await?;
            if result.succeeded {
                next.revision = result.revision;
                return Ok(next);
            }
        }
        Err(self.conflict(key, "too many concurrent writes to this object"))
    }
}
