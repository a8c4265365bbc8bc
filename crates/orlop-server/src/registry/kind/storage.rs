//! Storage of a kind's objects: the stored form, and the way to it.
//!
//! Most kinds are stored in the version they are served in: reading one copies bytes. Some are views of another
//! kind's objects: an older version, the same objects in another group, a library user's translation. Those share
//! the other kind's keys and index, and are converted on reads and writes.
//!
//! A stored value begins with a constant prefix: the schema stamp where the kind has one, apiVersion, kind, and
//! the start of metadata.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use orlop_api::{apply::VersionConverter, group_version::GroupVersionKind, status::Status};
use orlop_kinds::BuiltinConverter;
use serde_json::Value;

use super::Kind;
use crate::registry::{encoding, remote::Remote};

/// Converts objects between the stored and the served version.
#[async_trait]
pub trait Convert: Send + Sync {
    /// Converts stored objects to the served version, in order. An object may be of any version that was ever
    /// stored. Takes many, so that a webhook is called once.
    async fn served(&self, objects: Vec<Value>) -> Result<Vec<Value>, Status>;

    /// Converts a served object to the storage version.
    async fn stored(&self, object: Value) -> Result<Value, Status>;

    /// Returns the namespace and name that an object is stored under. The name is empty for a collection, and the
    /// namespace too for that of all namespaces.
    fn storage_key(&self, namespace: &str, name: &str) -> (String, String) {
        (namespace.to_owned(), name.to_owned())
    }

    /// Returns the selectable field of the stored kind that indexes one of the served kind; `None` if objects have
    /// to be decoded for it.
    fn indexed_as(&self, field: &str) -> Option<String> {
        Some(field.to_owned())
    }

    /// Returns the versions in which fields may be managed; `None` if only the served one.
    fn versions(&self) -> Option<&dyn VersionConverter> {
        None
    }

    /// Returns true if conversion by [`versions`](Self::versions) blocks on a webhook. Writes then run on a
    /// blocking thread.
    fn blocks(&self) -> bool {
        false
    }
}

/// Storage of a kind's objects.
#[derive(Clone)]
pub struct Storage {
    /// The kind that stores the objects, if it is another.
    pub(in crate::registry) of: Option<Arc<Kind>>,
    pub(in crate::registry) convert: Option<Arc<dyn Convert>>,
    /// Prefix of values that are written now.
    pub(in crate::registry) prefix: Bytes,
    /// Prefix that replaces it in responses; `None` if objects must be decoded.
    pub(in crate::registry) served: Option<Bytes>,
    /// The storage version, for discovery's hash.
    gvk: GroupVersionKind,
    /// The API server that stores the objects, if it is another.
    remote: Option<Arc<dyn Remote>>,
    /// Converter of a built-in kind that is written in two versions.
    pub(in crate::registry) converter: Option<Arc<BuiltinConverter>>,
}

impl Storage {
    /// Stores objects in the served version.
    pub fn own(gvk: &GroupVersionKind) -> Self {
        let prefix = encoding::prefix(gvk, None);
        Self {
            of: None,
            convert: None,
            served: Some(prefix.clone()),
            prefix,
            gvk: gvk.clone(),
            remote: None,
            converter: None,
        }
    }

    /// Stores objects in the served version, under a schema that may change. `convert` updates objects of another
    /// schema or version.
    pub fn stamped(gvk: &GroupVersionKind, stamp: &str, convert: Arc<dyn Convert>) -> Self {
        Self { convert: Some(convert), prefix: encoding::prefix(gvk, Some(stamp)), ..Self::own(gvk) }
    }

    /// Stores objects as those of another kind.
    pub fn translated(of: Arc<Kind>, convert: Arc<dyn Convert>) -> Self {
        let Self { prefix, gvk, .. } = of.storage.clone();
        Self {
            of: Some(of),
            convert: Some(convert),
            prefix,
            served: None,
            gvk,
            remote: None,
            converter: None,
        }
    }

    /// Returns the storage of a built-in kind that is written in two versions.
    pub(crate) fn with_converter(self, converter: Arc<BuiltinConverter>) -> Self {
        Self { converter: Some(converter), ..self }
    }

    /// Declares that the two kinds differ only in apiVersion and kind.
    #[must_use]
    pub fn renamed_only(self, gvk: &GroupVersionKind) -> Self {
        Self { served: Some(encoding::prefix(gvk, None)), ..self }
    }

    /// Forwards all requests to another API server, which stores the objects.
    pub fn remote(gvk: &GroupVersionKind, remote: Arc<dyn Remote>) -> Self {
        Self { remote: Some(remote), ..Self::own(gvk) }
    }

    /// Returns the API server that stores the objects, if it is another.
    pub(crate) fn remote_server(&self) -> Option<&dyn Remote> {
        self.remote.as_deref()
    }

    /// Returns the storage version.
    pub fn gvk(&self) -> &GroupVersionKind {
        &self.gvk
    }

    /// Returns true if the kind stores its own objects.
    pub(crate) fn is_own(&self) -> bool {
        self.of.is_none()
    }

    /// Returns true if bytes have the prefix of values that are written now.
    pub(crate) fn is_current(&self, stored: &[u8]) -> bool {
        stored.starts_with(&self.prefix)
    }
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Storage").field("gvk", &self.gvk).finish_non_exhaustive()
    }
}
