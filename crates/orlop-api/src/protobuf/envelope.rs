//! Envelopes (`runtime.Unknown`), lists and watch events.
//!
//! An object on the wire is `k8s\0`, then a message that names the kind and holds the object's own
//! message as bytes.

use super::{
    DecodeError, decode, descriptor_for, encode,
    message::Message,
    transcode,
    wire::{Reader, WireType, put_bytes, put_message, put_tag, put_varint},
};
use serde_json::Value;

/// Magic prefix of a protobuf object.
pub const MAGIC: &[u8; 4] = b"k8s\0";

/// A decoded envelope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    /// The object's message.
    pub raw: &'a [u8],
}

pub(super) fn is_envelope(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

impl<'a> Envelope<'a> {
    /// Decodes an envelope.
    pub fn open(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        if bytes.is_empty() {
            return Err(DecodeError::Empty);
        }
        let mut reader = Reader(bytes.strip_prefix(MAGIC).ok_or(DecodeError::NotAnObject)?);
        let mut envelope = Self::default();
        while !reader.is_empty() {
            match reader.tag()? {
                (1, WireType::Length) => envelope.read_type(reader.bytes()?)?,
                (2, WireType::Length) => envelope.raw = reader.bytes()?,
                (_, wire_type) => reader.skip(wire_type)?,
            }
        }
        Ok(envelope)
    }

    fn read_type(&mut self, bytes: &'a [u8]) -> Result<(), DecodeError> {
        let mut reader = Reader(bytes);
        while !reader.is_empty() {
            match reader.tag()? {
                (1, WireType::Length) => self.api_version = decode::utf8(reader.bytes()?)?,
                (2, WireType::Length) => self.kind = decode::utf8(reader.bytes()?)?,
                (_, wire_type) => reader.skip(wire_type)?,
            }
        }
        Ok(())
    }
}

/// Decodes the object of the type that the envelope names.
pub(super) fn object(bytes: &[u8], depth: usize) -> Result<Value, DecodeError> {
    let envelope = Envelope::open(bytes)?;
    let Some(descriptor) = descriptor_for(envelope.api_version, envelope.kind) else {
        return Err(DecodeError::UnknownKind {
            api_version: envelope.api_version.into(),
            kind: envelope.kind.into(),
        });
    };
    let mut object = decode::message(descriptor.message(), envelope.raw, depth)?;
    for (field, text) in [("apiVersion", envelope.api_version), ("kind", envelope.kind)] {
        if !text.is_empty() {
            object[field] = text.into();
        }
    }
    Ok(object)
}

/// Trailing fields of the envelope: contentEncoding and contentType, both empty. Go always writes them.
const END: [u8; 4] = [3 << 3 | 2, 0, 4 << 3 | 2, 0];

/// Encodes an envelope around a message.
pub(super) fn enclose(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(raw.len() + api_version.len() + kind.len() + 32);
    begin(&mut bytes, api_version, kind, raw.len());
    bytes.extend_from_slice(raw);
    bytes.extend_from_slice(&END);
    bytes
}

/// Encodes the start of an envelope, up to the message of the given length.
fn begin(bytes: &mut Vec<u8>, api_version: &str, kind: &str, raw_bytes: usize) {
    bytes.extend_from_slice(MAGIC);
    put_message(bytes, 1, |to| {
        put_bytes(to, 1, api_version.as_bytes());
        put_bytes(to, 2, kind.as_bytes());
    });
    put_tag(bytes, 2, WireType::Length);
    put_varint(bytes, raw_bytes as u64);
}

/// Encodes a list item by item: metadata is field 1, items are field 2. Messages are length-prefixed, so the bytes
/// before the items can only be written once their total size is known.
#[derive(Debug)]
pub struct ListWriter {
    item: &'static Message,
}

impl ListWriter {
    /// Creates a writer of a kind's lists; `None` if the kind has no protobuf.
    pub fn new(api_version: &str, kind: &str) -> Option<Self> {
        Some(Self { item: descriptor_for(api_version, kind)?.message() })
    }

    /// Encodes an object as an item.
    pub fn item(&self, object: &Value) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(1024);
        put_message(&mut bytes, 2, |to| encode::message(to, self.item, object));
        bytes
    }

    /// Encodes JSON text as an item; `None` if the object must be decoded first.
    pub fn item_of_json(&self, json: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(json.len());
        put_message(&mut bytes, 2, |to| transcode::message(to, self.item, json))?;
        Some(bytes)
    }

    /// Returns the bytes before the items, which take `items_bytes` together.
    pub fn opening(&self, api_version: &str, kind: &str, items_bytes: usize, metadata: &Value) -> Vec<u8> {
        let mut bytes = Vec::new();
        begin(&mut bytes, api_version, kind, items_bytes + list_metadata(metadata).len());
        bytes
    }

    /// Returns the bytes after the items.
    pub fn closing(&self, metadata: &Value) -> Vec<u8> {
        let mut bytes = list_metadata(metadata);
        bytes.extend_from_slice(&END);
        bytes
    }
}

/// Encodes ListMeta.
fn list_metadata(metadata: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(descriptor) = descriptor_for("v1", "ListMeta") {
        put_message(&mut bytes, 1, |to| encode::message(to, descriptor.message(), metadata));
    }
    bytes
}

/// Encodes a watch frame: a four-byte length and the event with the object's envelope.
pub fn watch_frame(event_type: &str, envelope: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 4];
    frame.reserve(envelope.len() + 32);
    put_bytes(&mut frame, 1, event_type.as_bytes());
    put_message(&mut frame, 2, |to| put_bytes(to, 1, envelope));
    let length = u32::try_from(frame.len() - 4).unwrap_or(u32::MAX);
    frame[..4].copy_from_slice(&length.to_be_bytes());
    frame
}
