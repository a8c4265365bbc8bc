//! Responses of objects.

use bytes::{Bytes, BytesMut};
use http::Response;
use orlop_api::{
    object_meta, protobuf,
    status::Status,
    table::{self, IncludeObject, Row, partial_object_metadata},
};
use serde_json::{Value, json};

use super::Request;
use crate::{
    http::{
        body::Body,
        negotiation::{Encoding, Negotiated, Transform},
        response,
    },
    object::now,
    registry::{Found, Kind},
    table::Columns,
};

/// Responds with a stored object.
pub(super) async fn stored_object(
    request: &Request,
    code: u16,
    found: &Found,
) -> Result<Response<Body>, Status> {
    let media_type = request.negotiated.encoding.media_type();
    match encode_stored(request, found) {
        Some(encoded) => Ok(response::bytes(code, media_type, encoded)),
        None => object(request, code, request.kind.read(found).await?),
    }
}

/// Encodes a stored object as negotiated, if that takes no decoding.
pub(super) fn encode_stored(request: &Request, found: &Found) -> Option<Bytes> {
    let (kind, Negotiated { encoding, transform }) = (&request.kind, request.negotiated);
    if !matches!(encoding, Encoding::Json | Encoding::Protobuf) {
        return None;
    }
    let mut json = BytesMut::new();
    if !kind.append_transformed(&mut json, transform, &found.bytes, found.revision) {
        return None;
    }
    if encoding == Encoding::Json {
        return Some(json.freeze());
    }
    let encoded = match transform {
        Transform::Metadata(version) => protobuf::encode_json(version, "PartialObjectMetadata", &json),
        _ => protobuf::encode_json(&kind.gvk.api_version(), &kind.gvk.kind, &json),
    };
    encoded.map(Bytes::from)
}

/// Responds with an object.
pub(crate) fn object(request: &Request, code: u16, object: Value) -> Result<Response<Body>, Status> {
    let Negotiated { encoding, transform } = request.negotiated;
    let value = match transform {
        Transform::Whole => object,
        Transform::Metadata(version) => partial_object_metadata(&object, version),
        Transform::Table(version) => {
            let revision = object_meta::text(object_meta::of(&object), "resourceVersion").to_owned();
            let metadata = json!({"resourceVersion": revision});
            table(request, version, std::slice::from_ref(&object), true, metadata)
        }
    };
    Ok(response::bytes(code, encoding.media_type(), response::encode(encoding, &value)))
}

/// Returns a Table of objects, with column definitions if wanted.
pub(super) fn table(
    request: &Request,
    version: &str,
    objects: &[Value],
    headings: bool,
    metadata: Value,
) -> Value {
    let columns = columns(&request.kind);
    let now = now();
    // Validated by content negotiation.
    let include = IncludeObject::parse(request.query.text("includeObject")).unwrap_or_default();
    let row = |object| Row::of(columns.cells(object, now), object, include, version);
    let rows: Vec<Row<'_>> = objects.iter().map(row).collect();
    let definitions = headings.then(|| columns.definitions());
    table::table(definitions.as_deref(), &rows, metadata, version)
}

/// Returns the printer columns of a kind.
pub(super) fn columns(kind: &Kind) -> &dyn Columns {
    &*kind.columns
}
