//! Watches over websockets, for browsers: each event is a message.

use aws_lc_rs::digest;
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header, request::Parts};
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message, Utf8Bytes,
        protocol::{Role, WebSocketConfig},
    },
};

use super::body::Body;

/// Prefix of the subprotocol that carries the bearer token of a browser, which cannot set headers.
const BEARER: &str = "base64url.bearer.authorization.k8s.io.";
/// GUID that RFC 6455 appends to the client's key.
const KEY_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Bytes of a message from a client, which has nothing to send.
const INCOMING_MAX: usize = 4 << 10;
/// Length prefix of an event in a protobuf stream; messages need none.
const FRAME_LENGTH: usize = 4;

/// A request to upgrade to a websocket.
#[derive(Debug)]
pub(crate) struct Upgrade {
    on: OnUpgrade,
    accept: HeaderValue,
    protocol: Option<HeaderValue>,
}

impl Upgrade {
    /// Returns the upgrade that a request asks for.
    pub(crate) fn of(parts: &mut Parts) -> Option<Self> {
        if !has(&parts.headers, &header::CONNECTION, "upgrade")
            || !has(&parts.headers, &header::UPGRADE, "websocket")
            || parts.headers.get(header::SEC_WEBSOCKET_VERSION)? != "13"
        {
            return None;
        }
        let accept = accept_key(&parts.headers)?;
        let protocol = protocols(&parts.headers).find(|protocol| !protocol.starts_with(BEARER));
        let protocol = protocol.and_then(|protocol| HeaderValue::from_str(protocol).ok());
        Some(Self { on: parts.extensions.remove::<OnUpgrade>()?, accept, protocol })
    }

    /// Sends a streamed body over the websocket. Returns other responses unchanged.
    pub(crate) fn take(self, response: Response<Body>) -> Response<Body> {
        if response.status() != StatusCode::OK || response.body().exact_length().is_some() {
            return response;
        }
        let (mut parts, mut body) = response.into_parts();
        body.separate_events();
        let is_json =
            parts.headers.get(header::CONTENT_TYPE).is_some_and(|media| media == "application/json");
        tokio::spawn(async move {
            match self.on.await {
                Ok(upgraded) => send(TokioIo::new(upgraded), body, is_json).await,
                Err(error) => tracing::debug!(%error, "the connection did not become a websocket"),
            }
        });
        parts.status = StatusCode::SWITCHING_PROTOCOLS;
        parts.headers.remove(header::CONTENT_TYPE);
        parts.headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        parts.headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        parts.headers.insert(header::SEC_WEBSOCKET_ACCEPT, self.accept);
        if let Some(protocol) = self.protocol {
            parts.headers.insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
        }
        Response::from_parts(parts, Body::empty())
    }
}

/// Returns the answer to a client's key.
pub(crate) fn accept_key(headers: &HeaderMap) -> Option<HeaderValue> {
    let key = headers.get(header::SEC_WEBSOCKET_KEY)?.to_str().ok()?;
    let hash =
        digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, format!("{}{KEY_SUFFIX}", key.trim()).as_bytes());
    HeaderValue::try_from(STANDARD.encode(hash)).ok()
}

/// Returns the subprotocols that a client offers.
pub(crate) fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).map(str::trim)
}

fn has(headers: &HeaderMap, name: &header::HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|known| known.trim().eq_ignore_ascii_case(word))
}

/// Sends the chunks of a body as messages until it ends or the client disconnects.
async fn send<S>(stream: S, mut body: Body, is_json: bool)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let config = WebSocketConfig::default()
        .read_buffer_size(INCOMING_MAX)
        .write_buffer_size(0)
        .max_message_size(Some(INCOMING_MAX))
        .max_frame_size(Some(INCOMING_MAX));
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
    loop {
        tokio::select! {
            piece = body.frame() => {
                let data = match piece {
                    Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
                    Some(Err(_)) => return,
                    None => {
                        let _ = socket.close(None).await;
                        return;
                    }
                };
                if socket.send(message(data, is_json)).await.is_err() {
                    return;
                }
            }
            // Reading answers pings and notices that the client has gone; other messages are ignored.
            incoming = socket.next() => match incoming {
                Some(Ok(message)) if !message.is_close() => {}
                _ => return,
            },
        }
    }
}

fn message(mut data: Bytes, is_json: bool) -> Message {
    if is_json && let Ok(text) = Utf8Bytes::try_from(data.clone()) {
        return Message::Text(text);
    }
    if !is_json && data.len() >= FRAME_LENGTH {
        data = data.slice(FRAME_LENGTH..);
    }
    Message::Binary(data)
}
