//! Watches and logs over websockets, for browsers: each event or piece of a log is a message.

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

/// Subprotocols of logs: as bytes, and as base64 in text.
const BINARY: &str = "binary.k8s.io";
const BASE64: &str = "base64.binary.k8s.io";

/// A request to upgrade to a websocket.
#[derive(Debug)]
pub(crate) struct Upgrade {
    on: OnUpgrade,
    accept: HeaderValue,
    protocol: Option<HeaderValue>,
    content: Content,
}

/// Content of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    JsonEvents,
    /// Events with a length before each, which messages do not need.
    ProtobufEvents,
    Log,
    Base64Log,
}

impl Upgrade {
    /// Returns the upgrade that a watch asks for.
    pub(crate) fn of_watch(parts: &mut Parts) -> Option<Self> {
        let protocol = protocols(&parts.headers).find(|protocol| !protocol.starts_with(BEARER));
        let protocol = protocol.and_then(|protocol| HeaderValue::from_str(protocol).ok());
        Self::of(parts, protocol, Content::JsonEvents)
    }

    /// Returns the upgrade that a request for a log asks for, unless it offers other subprotocols only.
    pub(crate) fn of_log(parts: &mut Parts) -> Option<Self> {
        let offered: Vec<&str> =
            protocols(&parts.headers).filter(|protocol| !protocol.starts_with(BEARER)).collect();
        let supported = offered.iter().find(|protocol| matches!(**protocol, BINARY | BASE64)).copied();
        let (protocol, content) = match supported {
            Some(BASE64) => (Some(BASE64), Content::Base64Log),
            Some(_) => (Some(BINARY), Content::Log),
            None if offered.is_empty() => (None, Content::Log),
            None => return None,
        };
        Self::of(parts, protocol.map(HeaderValue::from_static), content)
    }

    fn of(parts: &mut Parts, protocol: Option<HeaderValue>, content: Content) -> Option<Self> {
        if !has(&parts.headers, &header::CONNECTION, "upgrade")
            || !has(&parts.headers, &header::UPGRADE, "websocket")
            || parts.headers.get(header::SEC_WEBSOCKET_VERSION)? != "13"
        {
            return None;
        }
        let accept = accept_key(&parts.headers)?;
        let on = parts.extensions.remove::<OnUpgrade>()?;
        // Browsers offer encodings, which are for other responses.
        parts.headers.remove(header::ACCEPT_ENCODING);
        Some(Self { on, accept, protocol, content })
    }

    /// Sends a streamed body over the websocket. Returns other responses unchanged.
    pub(crate) fn take(self, response: Response<Body>) -> Response<Body> {
        let is_log = matches!(self.content, Content::Log | Content::Base64Log);
        if response.status() != StatusCode::OK || (!is_log && response.body().exact_length().is_some()) {
            return response;
        }
        let (mut parts, mut body) = response.into_parts();
        let is_json =
            parts.headers.get(header::CONTENT_TYPE).is_some_and(|media| media == "application/json");
        let content = match self.content {
            Content::JsonEvents if !is_json => Content::ProtobufEvents,
            content => content,
        };
        if !is_log {
            body.separate_events();
        }
        tokio::spawn(async move {
            match self.on.await {
                Ok(upgraded) => send(TokioIo::new(upgraded), body, content).await,
                Err(error) => tracing::debug!(%error, "the connection did not become a websocket"),
            }
        });
        parts.status = StatusCode::SWITCHING_PROTOCOLS;
        for of_body in [header::CONTENT_TYPE, header::CONTENT_LENGTH, header::TRANSFER_ENCODING] {
            parts.headers.remove(of_body);
        }
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
async fn send<S>(stream: S, mut body: Body, content: Content)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let config = WebSocketConfig::default()
        .read_buffer_size(INCOMING_MAX)
        .write_buffer_size(0)
        .max_message_size(Some(INCOMING_MAX))
        .max_frame_size(Some(INCOMING_MAX));
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
    // Clients of logs are told at once that the stream has begun.
    if matches!(content, Content::Log | Content::Base64Log)
        && socket.send(message(Bytes::new(), content)).await.is_err()
    {
        return;
    }
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
                if socket.send(message(data, content)).await.is_err() {
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

fn message(data: Bytes, content: Content) -> Message {
    match content {
        Content::JsonEvents => match Utf8Bytes::try_from(data.clone()) {
            Ok(text) => Message::Text(text),
            Err(_) => Message::Binary(data),
        },
        Content::ProtobufEvents if data.len() >= FRAME_LENGTH => Message::Binary(data.slice(FRAME_LENGTH..)),
        Content::ProtobufEvents | Content::Log => Message::Binary(data),
        Content::Base64Log => Message::Text(STANDARD.encode(data).into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    async fn received(content: Content) -> Vec<Message> {
        let (server, client) = tokio::io::duplex(4096);
        let sending =
            tokio::spawn(send(server, Body::Full(Some(Bytes::from_static(b"one\ntwo\n"))), content));
        let client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
        let messages: Vec<_> = client.collect().await;
        sending.await.unwrap();
        // The answer to the last message, which ends the stream, is not read.
        messages.into_iter().map_while(Result::ok).collect()
    }

    #[tokio::test]
    async fn logs_are_bytes_or_base64_after_an_empty_message() {
        let messages = received(Content::Log).await;
        let text = |data: &'static str| Message::Binary(Bytes::from_static(data.as_bytes()));
        assert_eq!(messages[..2], [text(""), text("one\ntwo\n")]);
        assert!(messages[2].is_close());
        let messages = received(Content::Base64Log).await;
        assert_eq!(messages[..2], [Message::text(""), Message::text("b25lCnR3bwo=")]);
    }

    #[test]
    fn log_subprotocols_are_negotiated() {
        let offered = |protocols: &str| {
            let request = http::Request::builder()
                .header(header::CONNECTION, "Upgrade")
                .header(header::UPGRADE, "websocket")
                .header(header::SEC_WEBSOCKET_VERSION, "13")
                .header(header::SEC_WEBSOCKET_KEY, "dGhlIHNhbXBsZSBub25jZQ==");
            let request = match protocols {
                "" => request,
                protocols => request.header(header::SEC_WEBSOCKET_PROTOCOL, protocols),
            };
            let mut request = request.body(()).unwrap();
            let on = hyper::upgrade::on(&mut request);
            let mut parts = request.into_parts().0;
            parts.extensions.insert(on);
            Upgrade::of_log(&mut parts).map(|upgrade| (upgrade.protocol, upgrade.content))
        };
        let protocol = |name: &'static str| Some(HeaderValue::from_static(name));
        assert_eq!(offered(""), Some((None, Content::Log)));
        assert_eq!(offered("other, base64.binary.k8s.io"), Some((protocol(BASE64), Content::Base64Log)));
        assert_eq!(offered("binary.k8s.io"), Some((protocol(BINARY), Content::Log)));
        assert_eq!(offered("base64url.bearer.authorization.k8s.io.eA"), Some((None, Content::Log)));
        assert_eq!(offered("v4.channel.k8s.io"), None);
    }
}
