//! Responses of encoded values.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use orlop_api::{key_order::GoOrdered, protobuf, status::Status};
use serde_json::Value;

use super::{
    body::Body,
    negotiation::{Encoding, Offers, negotiate},
};

/// Returns a response with a body of a media type.
pub(crate) fn bytes(code: u16, media_type: &str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Ok(media_type) = HeaderValue::from_str(media_type) {
        response.headers_mut().insert(header::CONTENT_TYPE, media_type);
    }
    response
}

/// Encodes a value for the wire.
pub(crate) fn encode(encoding: Encoding, value: &Value) -> Bytes {
    let ordered = GoOrdered::new(value);
    // A `Value` always encodes.
    let encoded = match encoding {
        Encoding::Json => serde_json::to_vec(&ordered).unwrap_or_default(),
        Encoding::PrettyJson => {
            let mut indented = serde_json::to_vec_pretty(&ordered).unwrap_or_default();
            indented.push(b'\n');
            indented
        }
        Encoding::Yaml => serde_saphyr::to_string(value).unwrap_or_default().into_bytes(),
        // Offered only where there is a type.
        Encoding::Protobuf => protobuf::encode(value).unwrap_or_default(),
    };
    encoded.into()
}

/// Returns a Status as a response, in an encoding that the client accepts.
pub(crate) fn status(headers: &HeaderMap, status: &Status) -> Response<Body> {
    let encoding = negotiate(headers, None, Offers { protobuf: true, ..Offers::default() })
        .map(|negotiated| negotiated.encoding)
        .unwrap_or_default();
    let mut response = bytes(status.code, encoding.media_type(), encode(encoding, &status.to_value()));
    let headers = response.headers_mut();
    if status.retry_after_seconds() > 0 {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(status.retry_after_seconds()));
    }
    if status.code == 403 {
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    }
    response
}

/// Returns Kubernetes' response to a path that it does not route.
pub(crate) fn not_found() -> Response<Body> {
    let text = Bytes::from_static(b"404 page not found\n");
    let mut response = bytes(404, "text/plain; charset=utf-8", text);
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
