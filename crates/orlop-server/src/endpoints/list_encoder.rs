//! How a list is written: what stands before its items, each item, and what follows them.
//!
//! Nothing here knows more of a list than one item at a time. What stands around the items is written with them left
//! out, and an item as if it were the only one: cut where the items are, the pieces make the list that writing it in
//! one go would have made. Its metadata comes last, since only then is it known where the next list would go on.

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

/// How the items of a list, and what is around them, are written.
#[derive(Debug)]
pub(super) struct ListEncoder {
    kind: Arc<Kind>,
    transform: Transform,
    encoder: Encoder,
    /// What rows of a table carry of their objects.
    include: IncludeObject,
    /// When ages are told.
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
    /// The one that a request asks for.
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
        // What cannot be read has been refused by now.
        let include = IncludeObject::parse(request.query.text("includeObject")).unwrap_or_default();
        Ok(Self { kind, transform, encoder, include, now: now() })
    }

    /// Whether stored bytes become items without being decoded whole, as far as the kind passes them.
    pub(super) fn passes(&self) -> bool {
        match (&self.encoder, self.transform) {
            (Encoder::Json, Transform::Whole | Transform::Metadata(_)) | (Encoder::Protobuf(_), _) => true,
            // Columns that are not ours may look at everything there is.
            (Encoder::Json, Transform::Table(_)) => answer::columns(&self.kind).show_content_only(),
            (Encoder::Indented | Encoder::Yaml, _) => false,
        }
    }

    /// What goes between two items.
    pub(super) fn separator(&self) -> &'static [u8] {
        match self.encoder {
            Encoder::Json | Encoder::Indented => b",",
            Encoder::Yaml | Encoder::Protobuf(_) => b"",
        }
    }

    /// Whether a list says how long it is before it begins.
    pub(super) fn tells_its_length(&self) -> bool {
        matches!(self.encoder, Encoder::Protobuf(_))
    }

    /// Appends an item, after a separator.
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

    /// Appends an item as it stands among others. Writing into memory does not fail.
    fn put_item(&self, to: &mut BytesMut, item: &impl Serialize) {
        /// The only item of a list that has nothing else.
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

    /// What stands before the items. How many bytes they are, and what the list's metadata will be, matters only where
    /// a list [tells its length](Self::tells_its_length).
    pub(super) fn opening(&self, items_bytes: usize, metadata: &Value) -> Vec<u8> {
        let (list_kind, api_version) = self.named();
        let mut fields = json!({"kind": list_kind, "apiVersion": api_version});
        let items = match self.transform {
            Transform::Table(_) => {
                fields["columnDefinitions"] =
                    table::definitions(&answer::columns(&self.kind).definitions()).into();
                "rows"
            }
            _ => "items",
        };
        let opening = match &self.encoder {
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
        opening.into_bytes()
    }

    /// What follows the items, if there were any.
    pub(super) fn closing(&self, any: bool, metadata: &Value) -> Vec<u8> {
        let last = json!({"metadata": metadata});
        let closing = match &self.encoder {
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
        closing.into_bytes()
    }

    /// What the list is called, and in which version.
    fn named(&self) -> (&str, String) {
        match self.transform {
            Transform::Whole => (&self.kind.list_kind, self.kind.gvk.api_version()),
            Transform::Metadata(version) => ("PartialObjectMetadataList", version.to_owned()),
            Transform::Table(version) => ("Table", version.to_owned()),
        }
    }
}

/// What is between a beginning and an end.
fn cut<'a>(text: &'a str, beginning: &str, end: &str) -> &'a [u8] {
    let text = text.strip_prefix(beginning).unwrap_or(text);
    text.strip_suffix(end).unwrap_or(text).as_bytes()
}

/// Items that are made of stored bytes.
impl RowEncoder for ListEncoder {
    fn append(&self, to: &mut BytesMut, value: &[u8], revision: Revision) -> bool {
        to.put_slice(self.separator());
        match (&self.encoder, self.transform) {
            (Encoder::Json, Transform::Table(version)) => {
                self.pass_row(to, version, value, revision).is_some()
            }
            (Encoder::Json, transform) => self.kind.pass_as(to, transform, value, revision),
            (Encoder::Protobuf(list), transform) => {
                let mut json = BytesMut::new();
                let passed = self.kind.pass_as(&mut json, transform, value, revision);
                let item = passed.then(|| list.item_of_json(&json)).flatten();
                item.map(|item| to.put_slice(&item)).is_some()
            }
            (Encoder::Indented | Encoder::Yaml, _) => false,
        }
    }
}

impl ListEncoder {
    /// Appends a row. Only what cells are made of is decoded.
    fn pass_row(&self, to: &mut BytesMut, version: &str, value: &[u8], revision: Revision) -> Option<()> {
        if self.include == IncludeObject::Object || !self.kind.passes(value) {
            return None;
        }
        let object = encoding::decode_unmanaged(value).ok()?;
        let cells = Value::Array(answer::columns(&self.kind).cells(&object, self.now));
        to.put_slice(b"{\"cells\":");
        serde_json::to_writer(to.writer(), &cells).ok()?;
        if self.include == IncludeObject::Metadata {
            to.put_slice(b",\"object\":");
            self.kind.pass_metadata(to, version, value, revision).then_some(())?;
        }
        to.put_u8(b'}');
        Some(())
    }
}
