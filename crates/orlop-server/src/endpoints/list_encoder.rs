//! Encodes a list one item at a time: head, items, tail.
//!
//! The head and tail are encoded with the items left out, and an item as if it were the only one. Cut at the
//! items, they concatenate to the encoding of the whole list. Metadata comes last, since the continue token
//! is known only then.

use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use orlop_api::{
    protobuf::ListWriter,
    status::Status,
    table::{self, IncludeObject, PartialObjectMetadata, Row},
    time::Time,
};
use orlop_store::{Revision, RowEncoder};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Request, answer};
use crate::{
    http::negotiation::{Encoding, MEDIA_TYPES, Transform},
    object::now,
    registry::{Kind, encoding},
};

/// Encoder of a list in the negotiated encoding and transform.
#[derive(Debug)]
pub(super) struct ListEncoder {
    kind: Arc<Kind>,
    transform: Transform,
    encoder: Encoder,
    /// `includeObject` of table rows.
    include: IncludeObject,
    /// The time that ages are relative to.
    now: Time,
}

#[derive(Debug)]
enum Encoder {
    Json,
    Indented,
    Yaml,
    Protobuf(ListWriter),
}

impl ListEncoder {
    /// Returns the encoder that a request negotiated.
    pub(super) fn of(request: &Request) -> Result<Self, Status> {
        let (kind, transform) = (request.kind.clone(), request.negotiated.transform);
        let encoder = match request.negotiated.encoding {
            Encoding::Json => Encoder::Json,
            Encoding::PrettyJson => Encoder::Indented,
            Encoding::Yaml => Encoder::Yaml,
            Encoding::Protobuf => {
                let list = match transform {
                    Transform::Metadata(version) => ListWriter::new(version, "PartialObjectMetadata"),
                    _ => ListWriter::new(&kind.gvk.api_version(), &kind.gvk.kind),
                };
                Encoder::Protobuf(list.ok_or_else(|| Status::not_acceptable(MEDIA_TYPES))?)
            }
        };
        // Validated by content negotiation.
        let include = IncludeObject::parse(request.query.text("includeObject")).unwrap_or_default();
        Ok(Self { kind, transform, encoder, include, now: now() })
    }

    /// Returns true if items can be copied from stored bytes.
    pub(super) fn copies_stored(&self) -> bool {
        match (&self.encoder, self.transform) {
            (Encoder::Json, Transform::Whole | Transform::Metadata(_)) | (Encoder::Protobuf(_), _) => true,
            // Columns of others may read any field.
            (Encoder::Json, Transform::Table(_)) => answer::columns(&self.kind).show_content_only(),
            (Encoder::Indented | Encoder::Yaml, _) => false,
        }
    }

    /// Returns the bytes between two items.
    pub(super) fn separator(&self) -> &'static [u8] {
        match self.encoder {
            Encoder::Json | Encoder::Indented => b",",
            Encoder::Yaml | Encoder::Protobuf(_) => b"",
        }
    }

    /// Returns true if the head contains the length of the items.
    pub(super) fn has_length_prefix(&self) -> bool {
        matches!(self.encoder, Encoder::Protobuf(_))
    }

    /// Appends a separator and an item.
    pub(super) fn put(&self, to: &mut BytesMut, object: &Value) {
        to.put_slice(self.separator());
        match (&self.encoder, self.transform) {
            (Encoder::Protobuf(list), _) => to.put_slice(&list.item(object)),
            (_, Transform::Whole) => self.put_item(to, object),
            (_, Transform::Metadata(version)) => {
                self.put_item(to, &PartialObjectMetadata::of(object, version));
            }
            (_, Transform::Table(version)) => {
                let cells = answer::columns(&self.kind).cells(object, self.now);
                self.put_item(to, &Row::of(cells, object, self.include, version));
            }
        }
    }

    /// Appends an item, indented as among others. Writing into memory does not fail.
    fn put_item(&self, to: &mut BytesMut, item: &impl Serialize) {
        /// A list of one item.
        #[derive(Serialize)]
        struct Only<'a, T> {
            items: [&'a T; 1],
        }
        let only = Only { items: [item] };
        match &self.encoder {
            Encoder::Json => {
                let _ = serde_json::to_writer(to.writer(), item);
            }
            Encoder::Indented => {
                let list = serde_json::to_string_pretty(&only).unwrap_or_default();
                to.put_slice(cut(&list, "{\n  \"items\": [", "\n  ]\n}"));
            }
            Encoder::Yaml => {
                let list = serde_saphyr::to_string(&only).unwrap_or_default();
                to.put_slice(cut(&list, "items:", "\n"));
            }
            Encoder::Protobuf(_) => {}
        }
    }

    /// Returns the bytes before the items. The length of the items and the metadata matter only to an encoding
    /// with a [length prefix](Self::has_length_prefix).
    pub(super) fn head(&self, items_bytes: usize, metadata: &Value) -> Vec<u8> {
        let (list_kind, api_version) = self.list_kind();
        let mut fields = json!({"kind": list_kind, "apiVersion": api_version});
        let items = match self.transform {
            Transform::Table(_) => {
                fields["columnDefinitions"] =
                    table::definitions(&answer::columns(&self.kind).definitions()).into();
                "rows"
            }
            _ => "items",
        };
        let head = match &self.encoder {
            Encoder::Json => {
                let fields = fields.to_string();
                format!("{},\"{items}\":[", fields.strip_suffix('}').unwrap_or(&fields))
            }
            Encoder::Indented => {
                let fields = serde_json::to_string_pretty(&fields).unwrap_or_default();
                format!("{},\n  \"{items}\": [", fields.strip_suffix("\n}").unwrap_or(&fields))
            }
            Encoder::Yaml => format!("{}{items}:", serde_saphyr::to_string(&fields).unwrap_or_default()),
            Encoder::Protobuf(list) => return list.opening(&api_version, list_kind, items_bytes, metadata),
        };
        head.into_bytes()
    }

    /// Returns the bytes after the items.
    pub(super) fn tail(&self, any: bool, metadata: &Value) -> Vec<u8> {
        let last = json!({"metadata": metadata});
        let tail = match &self.encoder {
            Encoder::Json => format!("],{}", last.to_string().trim_start_matches('{')),
            Encoder::Indented => {
                let last = serde_json::to_string_pretty(&last).unwrap_or_default();
                format!("{}],{}\n", if any { "\n  " } else { "" }, last.trim_start_matches('{'))
            }
            Encoder::Yaml => {
                let last = serde_saphyr::to_string(&last).unwrap_or_default();
                format!("{}\n{last}", if any { "" } else { " []" })
            }
            Encoder::Protobuf(list) => return list.closing(metadata),
        };
        tail.into_bytes()
    }

    /// Returns the kind and apiVersion of the list.
    fn list_kind(&self) -> (&str, String) {
        match self.transform {
            Transform::Whole => (&self.kind.list_kind, self.kind.gvk.api_version()),
            Transform::Metadata(version) => ("PartialObjectMetadataList", version.to_owned()),
            Transform::Table(version) => ("Table", version.to_owned()),
        }
    }
}

/// Returns the text between a prefix and a suffix.
fn cut<'a>(text: &'a str, prefix: &str, suffix: &str) -> &'a [u8] {
    let text = text.strip_prefix(prefix).unwrap_or(text);
    text.strip_suffix(suffix).unwrap_or(text).as_bytes()
}

/// Encodes items from stored bytes, in the store's reader.
impl RowEncoder for ListEncoder {
    fn append(&self, to: &mut BytesMut, value: &[u8], revision: Revision) -> bool {
        to.put_slice(self.separator());
        match (&self.encoder, self.transform) {
            (Encoder::Json, Transform::Table(version)) => {
                self.append_row(to, version, value, revision).is_some()
            }
            (Encoder::Json, transform) => self.kind.append_transformed(to, transform, value, revision),
            (Encoder::Protobuf(list), transform) => {
                let mut json = BytesMut::new();
                let passed = self.kind.append_transformed(&mut json, transform, value, revision);
                let item = passed.then(|| list.item_of_json(&json)).flatten();
                item.map(|item| to.put_slice(&item)).is_some()
            }
            (Encoder::Indented | Encoder::Yaml, _) => false,
        }
    }
}

impl ListEncoder {
    /// Appends a table row. Managed fields are not decoded.
    fn append_row(&self, to: &mut BytesMut, version: &str, value: &[u8], revision: Revision) -> Option<()> {
        if self.include == IncludeObject::Object || !self.kind.serves_stored(value) {
            return None;
        }
        let object = encoding::decode_unmanaged(value).ok()?;
        let cells = Value::Array(answer::columns(&self.kind).cells(&object, self.now));
        to.put_slice(b"{\"cells\":");
        serde_json::to_writer(to.writer(), &cells).ok()?;
        if self.include == IncludeObject::Metadata {
            to.put_slice(b",\"object\":");
            self.kind.append_metadata(to, version, value, revision).then_some(())?;
        }
        to.put_u8(b'}');
        Some(())
    }
}
