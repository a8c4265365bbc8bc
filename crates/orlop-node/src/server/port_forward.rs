//! `/portForward`: connections to a pod's ports, over SPDY.

use std::{collections::HashMap, io, net::Ipv4Addr, sync::Arc, time::Duration};

use http::{Request, Response, StatusCode};
use hyper::{body::Incoming, upgrade::Upgraded};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
    time::timeout,
};

use super::{
    Body,
    spdy::{self, Stream},
    spdy_upgrade, text,
};
use crate::{context::Node, networks::Networks};

const PROTOCOL: &str = "portforward.k8s.io";
/// Streams that wait for their pair.
const PENDING_MAX: usize = 100;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const BUFFER: usize = 32 << 10;

type Connection = TokioIo<Upgraded>;

/// Answers a request to forward ports of a pod.
pub(super) fn answer(
    node: &Arc<Node>,
    namespace: &str,
    pod: &str,
    request: Request<Incoming>,
) -> Response<Body> {
    let Some(entry) = node.directory.get(namespace, pod) else {
        return text(StatusCode::NOT_FOUND, "pod does not exist");
    };
    let Some(address) = entry.address else {
        return text(StatusCode::BAD_REQUEST, "the pod has no address");
    };
    let response = match spdy_upgrade::accept(request.headers(), &[PROTOCOL]) {
        Ok((response, _)) => response,
        Err(refusal) => return *refusal,
    };
    let title = format!("pod {pod}, uid {}", entry.uid);
    let networks = node.networks.clone();
    tokio::spawn(async move {
        let Ok(upgraded) = hyper::upgrade::on(request).await else { return };
        let (sender, streams) = mpsc::channel(8);
        let serving = spdy::serve(TokioIo::new(upgraded), sender);
        tokio::select! {
            served = serving => {
                if let Err(error) = served {
                    tracing::debug!(%error, "port-forward ended");
                }
            }
            () = pair(streams, address, networks, title) => {}
        }
    });
    response
}

/// Pairs the error and the data stream of each forwarded connection.
async fn pair(
    mut streams: mpsc::Receiver<Stream<Connection>>,
    address: Ipv4Addr,
    networks: Option<Networks>,
    title: String,
) {
    let mut pending: HashMap<String, Stream<Connection>> = HashMap::new();
    while let Some(stream) = streams.recv().await {
        let header = |name: &str| stream.headers.get(name).cloned().unwrap_or_default();
        let id = header("requestid");
        let Some(first) = pending.remove(&id) else {
            if pending.len() < PENDING_MAX {
                pending.insert(id, stream);
            }
            continue;
        };
        let is_error = header("streamtype") == "error";
        let (error, data) = if is_error { (stream, first) } else { (first, stream) };
        let (title, networks) = (title.clone(), networks.clone());
        tokio::spawn(async move {
            let port = data.headers.get("port").cloned().unwrap_or_default();
            if let Err(why) = forward(address, &port, networks.as_ref(), data).await {
                let message = format!("error forwarding port {port} to {title}: {why}");
                let _ = error.writer.write(message.as_bytes()).await;
            }
            let _ = error.writer.finish().await;
        });
    }
    // The client opens no more streams; those that are open go on.
    std::future::pending::<()>().await;
}

/// Connects to a port, and copies both ways.
async fn forward(
    address: Ipv4Addr,
    port: &str,
    networks: Option<&Networks>,
    mut stream: Stream<Connection>,
) -> Result<(), String> {
    let copied = async {
        let port: u16 = port.parse().map_err(|_| format!("invalid port {port:?}"))?;
        let connecting = timeout(CONNECT_TIMEOUT, TcpStream::connect((address, port))).await;
        let socket = match (connecting.map_err(|_| "i/o timeout".to_owned())?, networks) {
            // It may listen on the pod's own loopback address only.
            (Err(error), Some(networks)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                let inside = networks.connect(address, port, CONNECT_TIMEOUT).await;
                inside.and_then(|socket| {
                    socket.set_nonblocking(true)?;
                    TcpStream::from_std(socket)
                })
            }
            (connected, _) => connected,
        };
        let socket = socket.map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                format!("dial tcp {address}:{port}: connect: connection refused")
            }
            _ => error.to_string(),
        })?;
        let (mut reader, mut writer) = socket.into_split();
        let sending = async {
            while let Some(bytes) = stream.data.recv().await {
                if writer.write_all(&bytes).await.is_err() {
                    break;
                }
            }
            let _ = writer.shutdown().await;
        };
        let receiving = async {
            let mut buffer = vec![0; BUFFER];
            while let Ok(length @ 1..) = reader.read(&mut buffer).await {
                if stream.writer.write(&buffer[..length]).await.is_err() {
                    break;
                }
            }
            let _ = stream.writer.finish().await;
        };
        tokio::join!(sending, receiving);
        Ok(())
    }
    .await;
    if copied.is_err() {
        let _ = stream.writer.reset().await;
    }
    copied
}
