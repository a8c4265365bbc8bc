//! SPDY in a WebSocket: kubectl's port-forward. The WebSocket ends here, and nodes are spoken to in SPDY.

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use orlop_api::status::Status;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message, Utf8Bytes,
        protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode},
    },
};

use super::forward::{Backend, Forwarded, send};
use crate::http::{body::Body, websocket};

/// Subprotocol of the tunnel.
const PROTOCOL: &str = "SPDY/3.1+portforward.k8s.io";
/// Largest message.
const MESSAGE_BYTES_MAX: usize = 4 << 20;
const BUFFER: usize = 32 << 10;

/// Sends a port-forward on to a node. Returns `None` for a client that does not tunnel.
pub(crate) async fn tunnel(
    backend: &Backend,
    path: &str,
    headers: &HeaderMap,
    client: Option<OnUpgrade>,
) -> Option<Result<Response<Body>, Status>> {
    if !websocket::protocols(headers).any(|protocol| protocol == PROTOCOL) {
        return None;
    }
    let (client, accept) = (client?, websocket::accept_key(headers)?);
    Some(open(backend, path, client, accept).await)
}

async fn open(
    backend: &Backend,
    path: &str,
    client: OnUpgrade,
    accept: HeaderValue,
) -> Result<Response<Body>, Status> {
    let mut headers = HeaderMap::new();
    headers.insert(header::UPGRADE, HeaderValue::from_static("SPDY/3.1"));
    headers.insert("x-stream-protocol-version", HeaderValue::from_static("portforward.k8s.io"));
    let forwarded = Forwarded {
        method: http::Method::POST,
        path: path.to_owned(),
        headers,
        body: Bytes::new(),
        upgrade: None,
    };
    let response = send(backend, forwarded, true).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(Status::internal(&format!(
            "the node answered {} instead of switching protocols",
            response.status()
        )));
    }
    tokio::spawn(async move {
        let (Ok(node), Ok(client)) = tokio::join!(hyper::upgrade::on(response), client) else { return };
        copy(TokioIo::new(node), TokioIo::new(client)).await;
    });
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let sent = answer.headers_mut();
    sent.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    sent.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    sent.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    sent.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
    Ok(answer)
}

/// Copies bytes of a connection into messages, and back.
async fn copy<S>(node: S, client: S)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX));
    let socket = WebSocketStream::from_raw_socket(client, Role::Server, Some(config)).await;
    let (mut sink, mut messages) = socket.split();
    let (mut from_node, mut to_node) = tokio::io::split(node);
    let outgoing = async {
        let mut buffer = vec![0; BUFFER];
        while let Ok(length @ 1..) = from_node.read(&mut buffer).await {
            if sink.send(Message::binary(buffer[..length].to_vec())).await.is_err() {
                return;
            }
        }
        let frame = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() };
        let _ = sink.send(Message::Close(Some(frame))).await;
    };
    let incoming = async {
        while let Some(Ok(message)) = messages.next().await {
            match message {
                Message::Binary(bytes) if to_node.write_all(&bytes).await.is_err() => return,
                Message::Close(_) => break,
                _ => {}
            }
        }
        let _ = to_node.shutdown().await;
    };
    tokio::select! {
        () = outgoing => {}
        () = incoming => {}
    }
}
