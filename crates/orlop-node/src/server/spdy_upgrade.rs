//! The switch of a connection to SPDY.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

use super::{Body, full, text};

const UPGRADE: &str = "SPDY/3.1";
static PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
static ACCEPTED: HeaderName = HeaderName::from_static("x-accepted-stream-protocol-versions");

/// Returns true if a request asks for SPDY.
pub(super) fn is_upgrade(headers: &HeaderMap) -> bool {
    headers
        .get(header::UPGRADE)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(UPGRADE.as_bytes()))
}

/// Returns the response that switches to SPDY, and the protocol: the first of `known` that the client offers.
pub(super) fn accept(
    headers: &HeaderMap,
    known: &[&'static str],
) -> Result<(Response<Body>, &'static str), Box<Response<Body>>> {
    if !is_upgrade(headers) {
        return Err(Box::new(text(StatusCode::BAD_REQUEST, "Upgrade request required")));
    }
    let offered: Vec<&str> = headers
        .get_all(&PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .collect();
    // A client that offers none speaks the oldest.
    let found = match offered.is_empty() {
        true => known.last(),
        false => known.iter().find(|known| offered.contains(known)),
    };
    let Some(protocol) = found.copied() else {
        let mut refusal = text(
            StatusCode::FORBIDDEN,
            format!(
                "unable to upgrade: unable to negotiate protocol: client supports {offered:?}, server accepts {known:?}"
            ),
        );
        for version in known {
            refusal.headers_mut().append(&ACCEPTED, HeaderValue::from_static(version));
        }
        return Err(Box::new(refusal));
    };
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let sent = response.headers_mut();
    sent.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    sent.insert(header::UPGRADE, HeaderValue::from_static(UPGRADE));
    sent.insert(&PROTOCOL, HeaderValue::from_static(protocol));
    Ok((response, protocol))
}
