//! What a list has gathered, in the form that was asked for.

use http::Response;
use orlop_api::{protobuf::ListWriter, table::partial_object_metadata};
use serde_json::{Value, json};

use super::{Request, answer};
use crate::{
    body::Body,
    negotiation::{Encoding, Transform},
};

/// Objects of a list, so far.
pub(super) enum Gathered {
    /// As they are.
    Objects(Vec<Value>),
    /// Written already, so that only bytes are kept: protobuf says how long a list is before it begins,
    /// which is why it cannot be streamed.
    Protobuf { list: ListWriter, length: usize },
}

impl Gathered {
    /// Nothing yet, in the form that a request asks for.
    pub(super) fn of(request: &Request) -> Self {
        let list = match (request.negotiated.encoding, request.negotiated.transform) {
            (Encoding::Protobuf, Transform::Whole) => {
                ListWriter::new(&request.kind.gvk.api_version(), &request.kind.gvk.kind)
            }
            (Encoding::Protobuf, Transform::Metadata(version)) => {
                ListWriter::new(version, "PartialObjectMetadata")
            }
            _ => None,
        };
        list.map_or_else(|| Self::Objects(Vec::new()), |list| Self::Protobuf { list, length: 0 })
    }

    /// Adds an object.
    pub(super) fn push(&mut self, object: Value) {
        match self {
            Self::Objects(objects) => objects.push(object),
            Self::Protobuf { list, length } => {
                list.push(&object);
                *length += 1;
            }
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Objects(objects) => objects.len(),
            Self::Protobuf { length, .. } => *length,
        }
    }

    /// The list with its metadata.
    pub(super) fn answer(self, request: &Request, metadata: Value) -> Response<Body> {
        let encoding = request.negotiated.encoding;
        let (list_kind, api_version) = match request.negotiated.transform {
            Transform::Metadata(version) => ("PartialObjectMetadataList", version.to_owned()),
            _ => (request.kind.list_kind.as_str(), request.kind.gvk.api_version()),
        };
        let objects = match self {
            Self::Objects(objects) => objects,
            Self::Protobuf { list, .. } => {
                let bytes = list.finish(&api_version, list_kind, &metadata);
                return answer::bytes(200, encoding.media_type(), bytes);
            }
        };
        let value = match request.negotiated.transform {
            Transform::Whole => {
                json!({"kind": list_kind, "apiVersion": api_version, "metadata": metadata, "items": objects})
            }
            Transform::Metadata(version) => {
                let items: Vec<Value> =
                    objects.iter().map(|object| partial_object_metadata(object, version)).collect();
                json!({"kind": list_kind, "apiVersion": api_version, "metadata": metadata, "items": items})
            }
            Transform::Table(version) => answer::table(request, version, &objects, true, metadata),
        };
        answer::bytes(200, encoding.media_type(), answer::encode(encoding, &value))
    }
}
