//! How a kind's objects are kept.
//!
//! Most kinds are stored as they are served: reading one is copying bytes. Some are another kind's objects
//! seen in another form: an older version of it, the same thing in another group, a library user's
//! translation. Those share the other kind's keys and index, and are converted on the way in and out.
//!
//! What is written begins with a constant, the *opening*: the stamp of the schema it was written under
//! where the kind has one, apiVersion, kind, and the beginning of metadata. Bytes that begin with the
//! kind's present opening may be handed out with only the resourceVersion added; all others (of an older
//! version, or from before a change of schema) are decoded and converted.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use bytes::{BufMut, Bytes, BytesMut};
use orlop_api::{apply::VersionConverter, group_version::GroupVersionKind, status::Status};
use orlop_kinds::BuiltinConverter;
use orlop_store::{KeyValue, Revision, Terms};
use serde_json::Value;

use super::{Kind, KindSchema, encoding, index::terms_of, remote::Remote};
use crate::http::negotiation::Transform;

/// Turns objects into another form and back.
#[async_trait]
pub trait Convert: Send + Sync {
    /// Makes stored objects into what is served, in order. An object may be of any version that was ever
    /// stored. Many come at once so that a remote converter is asked once.
    async fn served(&self, objects: Vec<Value>) -> Result<Vec<Value>, Status>;

    /// Makes an object that is served into what is stored.
    async fn stored(&self, object: Value) -> Result<Value, Status>;

    /// Where an object of a namespace and name is stored: the namespace and name it has there. The name is
    /// empty where a whole collection is meant, and the namespace too where that is of all of them.
    fn storage_key(&self, namespace: &str, name: &str) -> (String, String) {
        (namespace.to_owned(), name.to_owned())
    }

    /// Under which field of the stored kind a selectable field of the served one is indexed; `None` if it
    /// has to be looked at in each object.
    fn indexed_as(&self, field: &str) -> Option<String> {
        Some(field.to_owned())
    }

    /// The versions in which fields may be owned; `None` where there is only the one that is served.
    fn versions(&self) -> Option<&dyn VersionConverter> {
        None
    }
}

/// How a kind's objects are kept.
#[derive(Clone)]
pub struct Storage {
    /// Whose objects these are, where they are another kind's.
    of: Option<Arc<Kind>>,
    convert: Option<Arc<dyn Convert>>,
    /// How what is written now begins.
    opening: Bytes,
    /// What stands there instead when those bytes are handed out; `None` if they never are.
    served: Option<Bytes>,
    /// The version it is stored in, for discovery's hash.
    gvk: GroupVersionKind,
    /// Another API server, if it is there that they are kept.
    remote: Option<Arc<dyn Remote>>,
    /// Converter of a built-in kind that is written in two versions.
    converter: Option<Arc<BuiltinConverter>>,
}

impl Storage {
    /// Stored as it is served.
    pub fn own(gvk: &GroupVersionKind) -> Self {
        let opening = encoding::opening(gvk, None);
        Self {
            of: None,
            convert: None,
            served: Some(opening.clone()),
            opening,
            gvk: gvk.clone(),
            remote: None,
            converter: None,
        }
    }

    /// Stored as it is served, under a schema that may change. What was written under another schema, or in
    /// another version, is made good by `convert`.
    pub fn stamped(gvk: &GroupVersionKind, stamp: &str, convert: Arc<dyn Convert>) -> Self {
        Self { convert: Some(convert), opening: encoding::opening(gvk, Some(stamp)), ..Self::own(gvk) }
    }

    /// Another kind's objects in another form.
    pub fn translated(of: Arc<Kind>, convert: Arc<dyn Convert>) -> Self {
        let Self { opening, gvk, .. } = of.storage.clone();
        Self {
            of: Some(of),
            convert: Some(convert),
            opening,
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

    /// The same, where the two forms differ in nothing but what they are called.
    #[must_use]
    pub fn renamed_only(self, gvk: &GroupVersionKind) -> Self {
        Self { served: Some(encoding::opening(gvk, None)), ..self }
    }

    /// Kept by another API server, which answers every request for them.
    pub fn remote(gvk: &GroupVersionKind, remote: Arc<dyn Remote>) -> Self {
        Self { remote: Some(remote), ..Self::own(gvk) }
    }

    /// The API server that keeps these objects, if it is another.
    pub(crate) fn elsewhere(&self) -> Option<&dyn Remote> {
        self.remote.as_deref()
    }

    /// In which version objects are stored.
    pub fn gvk(&self) -> &GroupVersionKind {
        &self.gvk
    }

    /// Whether the kind's stored form is its own.
    pub(crate) fn is_own(&self) -> bool {
        self.of.is_none()
    }

    /// Whether bytes are as they would be written now.
    pub(crate) fn is_current(&self, stored: &[u8]) -> bool {
        stored.starts_with(&self.opening)
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
        Self { bytes: kv.value, revision: kv.revision }
    }
}

/// Returns true if objects of a kind have a protobuf encoding.
pub(crate) fn has_protobuf(kind: &Kind) -> bool {
    matches!(kind.schema, KindSchema::Builtin(_))
}

/// An object ready for the store.
pub(crate) struct Encoded {
    pub(crate) bytes: Bytes,
    pub(crate) terms: Terms,
}

impl Kind {
    /// The kind whose keys and index this one's objects are under.
    pub(crate) fn stored_kind(&self) -> &Self {
        self.storage.of.as_deref().unwrap_or(self)
    }

    /// The part of an object's key that is its own, where that is not its namespace and name.
    pub(crate) fn storage_key(&self, namespace: &str, name: &str) -> Option<(String, String)> {
        self.storage.convert.as_ref().map(|convert| convert.storage_key(namespace, name))
    }

    /// Under which field of the index a selectable field is found.
    pub(crate) fn indexed_as(&self, field: &str) -> Option<String> {
        self.storage
            .convert
            .as_ref()
            .map_or_else(|| Some(field.to_owned()), |convert| convert.indexed_as(field))
    }

    /// The versions in which fields may be owned, where there are several.
    pub(crate) fn versions(&self) -> Option<&dyn VersionConverter> {
        match &self.storage.converter {
            Some(converter) => Some(&**converter),
            None => self.storage.convert.as_ref()?.versions(),
        }
    }

    /// The versions in which what an endpoint resets is reset alike.
    pub(crate) fn reset_versions(&self) -> Vec<String> {
        match &self.storage.converter {
            Some(converter) => converter.api_versions().map(str::to_owned).into(),
            None => vec![self.gvk.api_version()],
        }
    }

    /// Whether a stored object is handed out as it is.
    pub(crate) fn passes(&self, stored: &[u8]) -> bool {
        self.storage.served.is_some() && self.storage.is_current(stored)
    }

    /// Appends a stored object as it is served, if that takes no decoding.
    pub(crate) fn pass(&self, to: &mut BytesMut, stored: &[u8], revision: Revision) -> bool {
        let rest = stored.strip_prefix(&*self.storage.opening);
        let (Some(rest), Some(opening)) = (rest, &self.storage.served) else { return false };
        encoding::splice(to, opening, rest, revision);
        true
    }

    /// Appends only the metadata of a stored object, as `PartialObjectMetadata`, if that takes no decoding.
    pub(crate) fn pass_metadata(
        &self,
        to: &mut BytesMut,
        version: &str,
        stored: &[u8],
        revision: Revision,
    ) -> bool {
        let rest = stored.strip_prefix(&*self.storage.opening).filter(|_| self.storage.served.is_some());
        let Some(metadata) = rest.and_then(encoding::metadata) else { return false };
        let opening =
            format!("{{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"{version}\",\"metadata\":{{");
        encoding::splice(to, opening.as_bytes(), metadata, revision);
        to.put_u8(b'}');
        true
    }

    /// Appends what a transform leaves of a stored object, if that takes no decoding.
    pub(crate) fn pass_as(
        &self,
        to: &mut BytesMut,
        transform: Transform,
        stored: &[u8],
        revision: Revision,
    ) -> bool {
        match transform {
            Transform::Whole => self.pass(to, stored, revision),
            Transform::Metadata(version) => self.pass_metadata(to, version, stored, revision),
            Transform::Table(_) => false,
        }
    }

    /// A stored object, decoded, as it is served.
    pub async fn read(&self, found: &Found) -> Result<Value, Status> {
        let object = found.as_stored()?;
        match &self.storage.convert {
            Some(convert) if !self.passes(&found.bytes) => {
                let converted = convert.served(vec![object]).await?;
                converted.into_iter().next().ok_or_else(|| Status::internal("a conversion lost its object"))
            }
            Some(_) => Ok(self.named(object)),
            None => Ok(object),
        }
    }

    /// Stored objects, decoded, as they are served. Those that need it are converted together.
    pub async fn read_all(&self, found: &[Found]) -> Result<Vec<Value>, Status> {
        let mut objects = found.iter().map(Found::as_stored).collect::<Result<Vec<_>, _>>()?;
        let Some(convert) = &self.storage.convert else { return Ok(objects) };
        let mut strangers = Vec::new();
        for (index, (object, found)) in objects.iter_mut().zip(found).enumerate() {
            let taken = object.take();
            if self.passes(&found.bytes) {
                *object = self.named(taken);
            } else {
                strangers.push((index, taken));
            }
        }
        let (places, strangers): (Vec<usize>, Vec<Value>) = strangers.into_iter().unzip();
        if strangers.is_empty() {
            return Ok(objects);
        }
        let converted = convert.served(strangers).await?;
        if converted.len() != places.len() {
            return Err(Status::internal("a conversion lost objects"));
        }
        for (place, converted) in places.into_iter().zip(converted) {
            if let Some(object) = objects.get_mut(place) {
                *object = converted;
            }
        }
        Ok(objects)
    }

    /// Gives an object whose form is the same under another name that name.
    fn named(&self, mut object: Value) -> Value {
        if let Some(map) = object.as_object_mut().filter(|_| !self.storage.is_own()) {
            map.insert("apiVersion".into(), self.gvk.api_version().into());
            map.insert("kind".into(), self.gvk.kind.clone().into());
        }
        object
    }

    /// An object as it is stored, with what it is found under.
    pub(crate) async fn write(&self, object: &Value) -> Result<Encoded, Status> {
        let kind = self.stored_kind();
        let converted = match &self.storage.convert {
            Some(convert) if !self.storage.is_own() => Some(convert.stored(object.clone()).await?),
            _ => None,
        };
        let object = converted.as_ref().unwrap_or(object);
        Ok(Encoded { bytes: encoding::encode(object, &kind.storage.opening), terms: terms_of(kind, object) })
    }
}
