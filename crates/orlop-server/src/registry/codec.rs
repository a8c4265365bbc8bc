//! Codec of a kind's objects: conversion, encoding, and reads without decoding.
//!
//! Bytes that begin with the kind's current prefix are served with only the resourceVersion added; all others (of
//! another version, or from before a schema change) are decoded and converted.

use bytes::{BufMut, Bytes, BytesMut};
use orlop_api::{apply::VersionConverter, status::Status};
use orlop_store::{KeyValue, Revision, Terms};
use serde_json::Value;

use super::{Kind, KindSchema, encoding, index::terms_of};
use crate::http::negotiation::Transform;

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
