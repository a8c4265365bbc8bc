//! Remote commands over WebSockets: the first byte of a message is its channel.

use aws_lc_rs::digest;
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt, stream::SplitSink};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use hyper::{body::Incoming, upgrade::Upgraded};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message, Utf8Bytes,
        protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode},
    },
};

use super::{
    Body,
    channels::{Carrier, Input, Output},
    full,
};

/// GUID that RFC 6455 appends to the client's key.
const KEY_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Largest message.
const MESSAGE_BYTES_MAX: usize = 4 << 20;
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;

/// A version of the remote command protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Protocol {
    name: &'static str,
    is_base64: bool,
    /// The end is a Status.
    has_status: bool,
}

/// Versions, the preferred one first.
const PROTOCOLS: &[Protocol] = &[
    Protocol { name: "v5.channel.k8s.io", is_base64: false, has_status: true },
    Protocol { name: "v4.channel.k8s.io", is_base64: false, has_status: true },
    Protocol { name: "v4.base64.channel.k8s.io", is_base64: true, has_status: true },
    Protocol { name: "channel.k8s.io", is_base64: false, has_status: false },
    Protocol { name: "base64.channel.k8s.io", is_base64: true, has_status: false },
    Protocol { name: "", is_base64: false, has_status: false },
];

/// Size of a terminal, as clients send it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct TerminalSize {
    pub(super) width: u16,
    pub(super) height: u16,
}

/// Returns true if a request asks for a WebSocket.
pub(super) fn is_upgrade(headers: &HeaderMap) -> bool {
    headers.get(header::UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Returns the subprotocols that a client offers.
pub(super) fn offered(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let values = values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    values.map(|value| value.trim().to_owned()).collect()
}

/// Returns the protocol of a remote command.
pub(super) fn protocol(headers: &HeaderMap) -> Option<Protocol> {
    let offered = offered(headers);
    PROTOCOLS.iter().copied().find(|protocol| match protocol.name {
        "" => offered.is_empty(),
        name => offered.iter().any(|offered| offered == name),
    })
}

impl Protocol {
    pub(super) fn name(self) -> &'static str {
        self.name
    }
}

/// Returns the response that turns a connection into a WebSocket.
pub(super) fn accept(headers: &HeaderMap, protocol: &'static str) -> Option<Response<Body>> {
    let key = headers.get(header::SEC_WEBSOCKET_KEY)?.to_str().ok()?;
    let hash =
        digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, format!("{}{KEY_SUFFIX}", key.trim()).as_bytes());
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let sent = response.headers_mut();
    sent.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    sent.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    sent.insert(header::SEC_WEBSOCKET_ACCEPT, HeaderValue::try_from(STANDARD.encode(hash)).ok()?);
    if !protocol.is_empty() {
        sent.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    }
    Some(response)
}

/// A WebSocket on an upgraded connection.
pub(super) type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Waits for the upgrade of a request's connection.
pub(super) async fn upgrade(request: Request<Incoming>) -> Option<Socket> {
    let upgraded = hyper::upgrade::on(request).await.ok()?;
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX));
    Some(WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await)
}

/// Carries a remote command over a socket until its end.
pub(super) async fn carry(socket: Socket, protocol: Protocol, carrier: Carrier, writes: &[u8]) {
    let (mut sink, mut incoming) = socket.split();
    let Carrier { input, mut output } = carrier;
    let reading = tokio::spawn(async move {
        while let Some(Ok(message)) = incoming.next().await {
            let Some(message) = parse(&message, protocol) else { continue };
            if input.send(message).await.is_err() {
                break;
            }
        }
    });
    // Clients wait for a first message.
    if let Some(channel) = writes.first() {
        let _ = sink.send(message(*channel, b"", protocol)).await;
    }
    while let Some(next) = output.recv().await {
        let sent = match &next {
            Output::Stdout(bytes) => sink.send(message(STDOUT, bytes, protocol)).await,
            Output::Stderr(bytes) => sink.send(message(STDERR, bytes, protocol)).await,
            Output::End(end) => {
                let text = match protocol.has_status {
                    true => Some(end.to_status().to_string()),
                    false => end.to_text(),
                };
                match text {
                    Some(text) => sink.send(message(ERROR, text.as_bytes(), protocol)).await,
                    None => Ok(()),
                }
            }
        };
        if sent.is_err() || matches!(next, Output::End(_)) {
            break;
        }
    }
    close(sink).await;
    reading.abort();
}

async fn close(mut sink: SplitSink<Socket, Message>) {
    // Clients take an end without a code for a failure.
    let frame = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() };
    let _ = sink.send(Message::Close(Some(frame))).await;
    let _ = sink.close().await;
}

fn message(channel: u8, bytes: &[u8], protocol: Protocol) -> Message {
    if protocol.is_base64 {
        return Message::text(format!("{channel}{}", STANDARD.encode(bytes)));
    }
    let mut framed = Vec::with_capacity(bytes.len() + 1);
    framed.push(channel);
    framed.extend(bytes);
    Message::binary(framed)
}

fn parse(message: &Message, protocol: Protocol) -> Option<Input> {
    let bytes = match message {
        Message::Binary(bytes) => bytes.to_vec(),
        Message::Text(text) => text.as_bytes().to_vec(),
        _ => return None,
    };
    let (channel, rest) = bytes.split_first()?;
    let (channel, rest) = match protocol.is_base64 {
        true => (channel.wrapping_sub(b'0'), STANDARD.decode(rest).ok()?),
        false => (*channel, rest.to_vec()),
    };
    match channel {
        STDIN => Some(Input::Stdin(rest.into())),
        RESIZE => {
            let size: TerminalSize = serde_json::from_slice(&rest).ok()?;
            Some(Input::Resize(size.width, size.height))
        }
        CLOSE if rest.first() == Some(&STDIN) => Some(Input::StdinEnd),
        _ => None,
    }
}

/// Returns the parameters of a query.
pub(super) fn query_pairs(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        })
        .collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let digits: Vec<u8> = rest.by_ref().take(2).collect();
                let digits = std::str::from_utf8(&digits).unwrap_or_default();
                bytes.push(u8::from_str_radix(digits, 16).unwrap_or(b'?'));
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_carry_their_channel() {
        let [v5, ..] = PROTOCOLS else { unreachable!() };
        assert_eq!(parse(&Message::binary(vec![0, b'x']), *v5), Some(Input::Stdin("x".into())));
        assert_eq!(parse(&Message::binary(vec![255, 0]), *v5), Some(Input::StdinEnd));
        let size = [&[4][..], br#"{"Width":80,"Height":24}"#].concat();
        assert_eq!(parse(&Message::binary(size), *v5), Some(Input::Resize(80, 24)));
        let base64 = PROTOCOLS[4];
        assert_eq!(parse(&Message::text("0eA=="), base64), Some(Input::Stdin("x".into())));
        assert_eq!(message(1, b"x", base64), Message::text("1eA=="));
    }

    #[test]
    fn query_is_decoded() {
        let pairs = query_pairs("command=a%20b&command=c+d&tty");
        let expected = [("command", "a b"), ("command", "c d"), ("tty", "")];
        assert_eq!(pairs, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
