//! One kind on one store: keys, reading, and the one way in which objects are changed.

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
    encoded::Encoded,
    error::Error,
    kinds::Kind,
    object::Object,
    selector,
    shape::{Part, Shape},
    versions::Versions,
    wire,
};

/// Where an object goes that names no namespace.
const DEFAULT_NAMESPACE: &str = "default";
/// How long a read waits for a version that this process has not seen yet.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often an unconditional write is tried again when another one comes in between.
const ATTEMPTS: usize = 32;

/// A kind, served.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) kind: &'static Kind,
    pub(crate) shape: Shape,
    pub(crate) store: Store,
    pub(crate) versions: Versions,
    /// How often a watch that asked for bookmarks gets one.
    pub(crate) bookmark_period: Duration,
    /// Turns true when the server stops.
    pub(crate) stopping: watch::Receiver<bool>,
    pub(crate) encoded: Encoded,
}

/// Which object.
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
            // What cannot be stored cannot be asked for: a slash would reach into another namespace.
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

    /// All objects, or those of one namespace.
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

    /// Waits until reads show at least this revision.
    pub(crate) async fn reach(&self, revision: Option<Revision>) -> Result<(), Error> {
        let Some(revision) = revision else { return Ok(()) };
        match self.store.wait_for_revision(revision, PATIENCE).await {
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

    /// A stored version as it travels, if a selector chooses it.
    pub(crate) fn chosen(&self, kv: &KeyValue, selector: &Selector) -> Result<Option<Bytes>, Error> {
        let everything = selector.is_everything();
        if everything && let Some(known) = self.encoded.get(&kv.key, kv.revision) {
            return Ok(Some(known));
        }
        let object = Object::read(kv)?;
        if !selector::chooses(selector, &object) {
            return Ok(None);
        }
        let encoded = Bytes::from(self.wire(&object)?.encode_to_vec());
        if everything {
            self.encoded.put(&kv.key, kv.revision, &encoded);
        }
        Ok(Some(encoded))
    }

    /// A version that a call has made, or would have, as it travels.
    pub(crate) fn made(&self, key: &Key, object: &Object) -> Result<wire::Made, Error> {
        let encoded = Bytes::from(self.wire(object)?.encode_to_vec());
        self.encoded.put(&key.bytes, object.revision, &encoded);
        Ok(wire::Made(encoded))
    }

    /// An object as it travels.
    pub(crate) fn wire(&self, object: &Object) -> Result<wire::Object, Error> {
        let part = |part: Part| {
            let value = object.part(part.name());
            if value.is_null() {
                return Ok(None);
            }
            self.shape.encode(part, value).map(Some).map_err(|why| {
                tracing::error!(name = object.name(), why, "stored object does not fit its kind");
                Error::Unreadable(object.name().to_owned())
            })
        };
        Ok(wire::Object {
            type_meta: Some(self.type_meta("")),
            object_meta: Some(wire::meta(object.meta(), self.versions.text(object.revision))),
            spec: part(Part::Spec)?,
            status: part(Part::Status)?,
        })
    }

    // --- writing ---

    pub(crate) fn put(key: &Key, object: &Object) -> Put {
        Put { terms: selector::terms(object.meta()), ..Put::new(key.bytes.clone(), object.bytes()) }
    }

    /// Finds what is wrong with an object about to be stored.
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

    /// Reads an object, has `change` make the next version of it, and writes that if it differs and if
    /// nobody else wrote in between. `expected` is the version that the caller has seen, if it cares.
    pub(crate) async fn modify(
        &self,
        key: &Key,
        expected: Option<Revision>,
        change: impl Fn(&Object) -> Result<Object, Error>,
    ) -> Result<Object, Error> {
        for _ in 0..ATTEMPTS {
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
            // Nobody looks at it while the write waits for its turn, with many others.
            drop(current);
            let result = self.store.txn(Txn::replace(Self::put(key, &next), revision)).await?;
            if result.succeeded {
                next.revision = result.revision;
                return Ok(next);
            }
        }
        Err(self.conflict(key, "too many others write this object at the same time"))
    }
}
