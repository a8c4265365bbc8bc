//! Protobuf, `application/vnd.kubernetes.protobuf`, from the tables of built-in types.
//!
//! There is no generated code: descriptors are built from the type tables on first use,
//! and one decoder and one encoder serve all types. A decoded object is the [`Value`] that the JSON
//! codec would produce, so no other code depends on the media type.
//!
//! - `wire` has tags, varints and lengths; `message` a type's fields; `special` the messages that are not
//!   JSON objects; [`Envelope`] the `runtime.Unknown` around an object.
//! - Custom resources have no field numbers, so only PartialObjectMetadata of them is served as protobuf.
//!
//! Unknown fields are skipped. Every length is checked against the remaining bytes, and nesting against
//! [`crate::decode::DEPTH_MAX`].

mod decode;
mod encode;
mod envelope;
mod message;
pub mod openapi;
mod special;
mod transcode;
mod wire;

pub use envelope::{Envelope, ListWriter, MAGIC, watch_frame};
use message::Descriptor;

use crate::schema::builtin::{TypeEntry, type_named, type_of};
use serde_json::Value;

/// Media type of Kubernetes protobuf.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// Error of decoding a protobuf object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("empty data")]
    Empty,
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NotAnObject,
    #[error("unexpected EOF")]
    Truncated,
    #[error("proto: integer overflow")]
    Overflow,
    #[error("proto: illegal tag")]
    IllegalTag,
    #[error("proto: illegal wireType {0}")]
    IllegalWireType(u64),
    #[error("proto: wrong wireType for field {field}")]
    WrongWireType { field: String },
    #[error("proto: field {0} is not valid UTF-8")]
    InvalidText(String),
    #[error("proto: a time is out of range")]
    IllegalTime,
    #[error("exceeded max depth")]
    TooDeep,
    #[error("raw JSON: {0}")]
    Raw(String),
    #[error("no kind \"{kind}\" is registered for version \"{api_version}\"")]
    UnknownKind { api_version: String, kind: String },
}

/// Returns the type of a kind. Kinds of `meta.k8s.io` (Status, DeleteOptions…) are in every group.
pub fn type_for(api_version: &str, kind: &str) -> Option<&'static TypeEntry> {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    type_of(group, version, kind)
        .or_else(|| type_named(&format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}")))
}

/// Returns the message descriptor of a kind.
fn descriptor_for(api_version: &str, kind: &str) -> Option<&'static Descriptor> {
    Descriptor::named(type_for(api_version, kind)?.name())
}

/// Decodes an enveloped object of the type that the envelope names.
pub fn decode(bytes: &[u8]) -> Result<Value, DecodeError> {
    let object = envelope::object(bytes, 0)?;
    crate::decode::check_depth(&object).map_err(|_| DecodeError::TooDeep)?;
    Ok(object)
}

/// Decodes an enveloped object of a known type; the envelope may omit its kind.
pub fn decode_as(bytes: &[u8], entry: &TypeEntry) -> Result<Value, DecodeError> {
    let Envelope { api_version, kind, raw } = Envelope::open(bytes)?;
    let unknown = || DecodeError::UnknownKind { api_version: api_version.into(), kind: kind.into() };
    let descriptor = Descriptor::named(entry.name()).ok_or_else(unknown)?;
    let mut object = decode::message(descriptor.message(), raw, 0)?;
    for (field, text) in [("apiVersion", api_version), ("kind", kind)] {
        if !text.is_empty() {
            object[field] = text.into();
        }
    }
    crate::decode::check_depth(&object).map_err(|_| DecodeError::TooDeep)?;
    Ok(object)
}

/// Like [`encode`], from JSON text; `None` if the object must be decoded first.
pub fn encode_json(api_version: &str, kind: &str, json: &[u8]) -> Option<Vec<u8>> {
    let mut raw = Vec::with_capacity(json.len());
    transcode::message(&mut raw, descriptor_for(api_version, kind)?.message(), json)?;
    Some(envelope::enclose(api_version, kind, &raw))
}

/// Encodes an object in its envelope; `None` if its type has no protobuf.
pub fn encode(object: &Value) -> Option<Vec<u8>> {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let mut raw = Vec::with_capacity(512);
    encode::message(&mut raw, descriptor_for(api_version, kind)?.message(), object);
    Some(envelope::enclose(api_version, kind, &raw))
}
