//! Storage of a kind's objects: conversion, encoding, and reads without decoding.
//!
//! Most kinds are stored in the version they are served in: reading one copies bytes. Some are views of another
//! kind's objects: an older version, the same objects in another group, a library user's translation. Those share
//! the other kind's keys and index, and are converted on reads and writes.
//!
//! A stored value begins with a constant prefix: the schema stamp where the kind has one, apiVersion, kind, and
//! the start of metadata. Bytes with the kind's current prefix are served with only the resourceVersion added; all
//! others (of another version, or from before a schema change) are decoded and converted.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use bytes::{BufMut, Bytes, BytesMut};
use orlop_api::{apply::VersionConverter, group_version::GroupVersionKind, status::Status};
use orlop_kinds::BuiltinConverter;
use orlop_store::{KeyValue, Revision, Terms};
use serde_json::Value;

use super::{Kind, KindSchema, encoding, index::terms_of, remote::Remote};
use crate::http::negotiation::Transform;

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
    of: Option<Arc<Kind>>,
    convert: Option<Arc<dyn Convert>>,
    /// Prefix of values that are written now.
    prefix: Bytes,
    /// Prefix that replaces it in responses; `None` if objects must be decoded.
    served: Option<Bytes>,
    /// The storage version, for discovery's hash.
    gvk: GroupVersionKind,
    /// The API server that stores the objects, if it is another.
    remote: Option<Arc<dyn Remote>>,
    /// Converter of a built-in kind that is written in two versions.
    converter: Option<Arc<BuiltinConverter>>,
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

/// An object as it was read.
#[derive(Clone, Debug)]
pub struct Found {
    /// The stored bytes, without the resourceVersion.
    pub bytes: Bytes,
    /// The resourceVersion.
    pub revision: Revision,
    /// True if the object should be written again even if it does not change: it would be encrypted otherwise now.
    pub stale: bool,
}

impl Found {
    /// Decodes the object in its stored version. `Kind::read` returns the served version.
    pub fn as_stored(&self) -> Result<Value, Status> {
        encoding::decode(&self.bytes, self.revision)
            .map_err(|error| Status::internal(&format!("the stored object is damaged: {error}")))
    }
}

impl From<KeyValue> for Found {
    fn from(kv: KeyValue) -> Self {
        Self { bytes: kv.value, revision: kv.revision, stale: kv.stale }
    }
}

/// Returns true if objects of a kind have a protobuf encoding.
pub(crate) fn has_protobuf(kind: &Kind) -> bool {
    matches!(kind.schema, KindSchema::Builtin(_))
}

/// An encoded object and its index terms.
pub(crate) struct Encoded {
    pub(crate) bytes: Bytes,
    pub(crate) terms: Terms,
}

impl Kind {
    /// Returns the kind that stores the objects.
    pub(crate) fn stored_kind(&self) -> &Self {
        self.storage.of.as_deref().unwrap_or(self)
    }

    /// Returns the namespace and name in keys, where they are not the object's.
    pub(crate) fn storage_key(&self, namespace: &str, name: &str) -> Option<(String, String)> {
        self.storage.convert.as_ref().map(|convert| convert.storage_key(namespace, name))
    }

    /// Returns the index field of a selectable field.
    pub(crate) fn indexed_as(&self, field: &str) -> Option<String> {
        self.storage
            .convert
            .as_ref()
            .map_or_else(|| Some(field.to_owned()), |convert| convert.indexed_as(field))
    }

    /// Returns the versions in which fields may be managed, if there are several.
    pub(crate) fn versions(&self) -> Option<&dyn VersionConverter> {
        match &self.storage.converter {
            Some(converter) => Some(&**converter),
            None => self.storage.convert.as_ref()?.versions(),
        }
    }

    /// Returns true if tracking managed fields may block on a conversion webhook.
    pub(crate) fn blocks_on_conversion(&self) -> bool {
        self.storage.convert.as_ref().is_some_and(|convert| convert.blocks())
    }

    /// Returns the versions in which an endpoint resets the same fields.
    pub(crate) fn reset_versions(&self) -> Vec<String> {
        match &self.storage.converter {
            Some(converter) => converter.api_versions().map(str::to_owned).into(),
            None => vec![self.gvk.api_version()],
        }
    }

    /// Returns true if a stored value is served without decoding.
    pub(crate) fn serves_stored(&self, stored: &[u8]) -> bool {
        self.storage.served.is_some() && self.storage.is_current(stored)
    }

    /// Appends a stored value in the served version, if that takes no decoding.
    pub(crate) fn append_served(&self, to: &mut BytesMut, stored: &[u8], revision: Revision) -> bool {
        let rest = stored.strip_prefix(&*self.storage.prefix);
        let (Some(rest), Some(prefix)) = (rest, &self.storage.served) else { return false };
        encoding::splice(to, prefix, rest, revision);
        true
    }

    /// Appends the PartialObjectMetadata of a stored value, if that takes no decoding.
    pub(crate) fn append_metadata(
        &self,
        to: &mut BytesMut,
        version: &str,
        stored: &[u8],
        revision: Revision,
    ) -> bool {
        let rest = stored.strip_prefix(&*self.storage.prefix).filter(|_| self.storage.served.is_some());
        let Some(metadata) = rest.and_then(encoding::metadata) else { return false };
        let prefix =
            format!("{{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"{version}\",\"metadata\":{{");
        encoding::splice(to, prefix.as_bytes(), metadata, revision);
        to.put_u8(b'}');
        true
    }

    /// Appends the transform of a stored value, if that takes no decoding.
    pub(crate) fn append_transformed(
        &self,
        to: &mut BytesMut,
        transform: Transform,
        stored: &[u8],
        revision: Revision,
    ) -> bool {
        match transform {
            Transform::Whole => self.append_served(to, stored, revision),
            Transform::Metadata(version) => self.append_metadata(to, version, stored, revision),
            Transform::Table(_) => false,
        }
    }

    /// Decodes a stored object in the served version.
    pub async fn read(&self, found: &Found) -> Result<Value, Status> {
        let object = found.as_stored()?;
        match &self.storage.convert {
            Some(convert) if !self.serves_stored(&found.bytes) => {
                let converted = convert.served(vec![object]).await?;
                converted.into_iter().next().ok_or_else(|| Status::internal("a conversion lost its object"))
            }
            Some(_) => Ok(self.renamed(object)),
            None => Ok(object),
        }
    }

    /// Returns an object as it would be read once it was written. Custom resources in another version than the stored one
    /// lose what that version lacks, and get its defaults.
    pub(crate) async fn as_read(&self, object: Value) -> Result<Value, Status> {
        match &self.storage.convert {
            Some(convert) if self.flags.custom && !self.storage.is_own() => {
                let stored = convert.stored(object).await?;
                let served = convert.served(vec![stored]).await?;
                served.into_iter().next().ok_or_else(|| Status::internal("a conversion lost its object"))
            }
            _ => Ok(object),
        }
    }

    /// Decodes stored objects in the served version. Converts together those that need it.
    pub async fn read_all(&self, found: &[Found]) -> Result<Vec<Value>, Status> {
        let mut objects = found.iter().map(Found::as_stored).collect::<Result<Vec<_>, _>>()?;
        let Some(convert) = &self.storage.convert else { return Ok(objects) };
        let mut unconverted = Vec::new();
        for (index, (object, found)) in objects.iter_mut().zip(found).enumerate() {
            let taken = object.take();
            if self.serves_stored(&found.bytes) {
                *object = self.renamed(taken);
            } else {
                unconverted.push((index, taken));
            }
        }
        let (indices, unconverted): (Vec<usize>, Vec<Value>) = unconverted.into_iter().unzip();
        if unconverted.is_empty() {
            return Ok(objects);
        }
        let converted = convert.served(unconverted).await?;
        if converted.len() != indices.len() {
            return Err(Status::internal("a conversion lost objects"));
        }
        for (index, converted) in indices.into_iter().zip(converted) {
            if let Some(object) = objects.get_mut(index) {
                *object = converted;
            }
        }
        Ok(objects)
    }

    /// Converts an object of this kind to another kind of the same objects.
    pub(crate) async fn convert_to(&self, target: &Self, object: Value) -> Result<Value, Status> {
        // Custom resources are converted from any version; others by way of the storage version.
        let stored = match &self.storage.convert {
            Some(convert) if !self.flags.custom && !self.storage.is_own() => convert.stored(object).await?,
            _ => object,
        };
        match &target.storage.convert {
            Some(convert) if target.flags.custom || !target.storage.is_own() => {
                let converted = convert.served(vec![stored]).await?;
                converted.into_iter().next().ok_or_else(|| Status::internal("a conversion lost its object"))
            }
            _ => Ok(stored),
        }
    }

    /// Sets apiVersion and kind of an object that differs only in those.
    fn renamed(&self, mut object: Value) -> Value {
        if let Some(map) = object.as_object_mut().filter(|_| !self.storage.is_own()) {
            map.insert("apiVersion".into(), self.gvk.api_version().into());
            map.insert("kind".into(), self.gvk.kind.clone().into());
        }
        object
    }

    /// Encodes an object for the store, with its index terms.
    pub(crate) async fn write(&self, object: &Value) -> Result<Encoded, Status> {
        let kind = self.stored_kind();
        let converted = match &self.storage.convert {
            Some(convert) if !self.storage.is_own() => Some(convert.stored(object.clone()).await?),
            _ => None,
        };
        let object = converted.as_ref().unwrap_or(object);
        Ok(Encoded { bytes: encoding::encode(object, &kind.storage.prefix), terms: terms_of(kind, object) })
    }
}
