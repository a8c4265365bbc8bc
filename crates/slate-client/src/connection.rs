//! One connection: requests go out as they come, responses are matched in order.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Buf as _;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    sync::{mpsc, oneshot},
};
use tokio_rustls::TlsConnector;

use crate::protocol::{self, FRAME_LEN_MAX, FrameHead, Response};

/// Requests that may wait to be written.
const QUEUE_MAX: usize = 4096;
/// Requests written at once.
const COALESCE_BYTES: usize = 64 << 10;

/// Responses to the requests of a call, or the reason why the connection broke.
type CallResult = Result<Vec<Response>, String>;

/// A call that waits to be sent: frames of one or more requests.
struct QueuedCall {
    frames: Vec<u8>,
    call: InFlightCall,
}

/// A call that is sent and awaits its responses.
struct InFlightCall {
    requests: usize,
    responses: Vec<Response>,
    result: oneshot::Sender<CallResult>,
}

/// A connection. It closes when it is dropped and what was sent is answered.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    requests: mpsc::Sender<QueuedCall>,
}

impl std::fmt::Debug for QueuedCall {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("QueuedCall")
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Connection {
    pub(crate) async fn open(
        address: &str,
        tls: Option<&(Arc<rustls::ClientConfig>, String)>,
        timeout: Duration,
    ) -> Result<Self, String> {
        let connect = async {
            let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
            stream.set_nodelay(true).map_err(|error| error.to_string())?;
            Ok::<Box<dyn Stream>, String>(match tls {
                None => Box::new(stream),
                Some((config, name)) => {
                    let name = rustls::pki_types::ServerName::try_from(name.clone())
                        .map_err(|error| error.to_string())?;
                    let connector = TlsConnector::from(Arc::clone(config));
                    Box::new(connector.connect(name, stream).await.map_err(|error| error.to_string())?)
                }
            })
        };
        let stream = tokio::time::timeout(timeout, connect)
            .await
            .map_err(|_| format!("no connection within {timeout:?}"))??;
        let (requests, queue) = mpsc::channel(QUEUE_MAX);
        tokio::spawn(run(stream, queue));
        Ok(Self { requests })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.requests.is_closed()
    }

    /// Sends the frames of `requests` requests and returns their responses.
    pub(crate) async fn call(&self, frames: Vec<u8>, requests: usize) -> CallResult {
        let (result, completed) = oneshot::channel();
        let closed = || "connection closed".to_owned();
        let call = InFlightCall { requests, responses: Vec::with_capacity(requests), result };
        self.requests.send(QueuedCall { frames, call }).await.map_err(|_| closed())?;
        completed.await.map_err(|_| closed())?
    }
}

async fn run(stream: Box<dyn Stream>, mut requests: mpsc::Receiver<QueuedCall>) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let (written, mut written_calls) = mpsc::unbounded_channel::<InFlightCall>();
    // Calls that were sent and have no response yet.
    let in_flight_count = &AtomicUsize::new(0);
    let write = async move {
        let mut buffer = Vec::new();
        while let Some(pending) = requests.recv().await {
            if in_flight_count.load(Ordering::Relaxed) > 0 {
                // Several use the connection: whoever is ready to call does so first, and is sent together with this.
                tokio::task::yield_now().await;
            }
            buffer.clear();
            let mut next = Some(pending);
            while let Some(QueuedCall { frames, call }) = next.take() {
                buffer.extend_from_slice(&frames);
                in_flight_count.fetch_add(1, Ordering::Relaxed);
                // The reader's half is gone only when the connection is.
                if written.send(call).is_err() {
                    return;
                }
                if buffer.len() < COALESCE_BYTES {
                    next = requests.try_recv().ok();
                }
            }
            if writer.write_all(&buffer).await.is_err() || writer.flush().await.is_err() {
                return;
            }
        }
        // Nobody calls any more; the server closes after its last answer.
        let _ = writer.shutdown().await;
    };
    let read = async move {
        let mut buffer = bytes::BytesMut::with_capacity(16 << 10);
        let mut in_flight: VecDeque<InFlightCall> = VecDeque::new();
        let reason = loop {
            match next_response(&mut buffer) {
                Err(reason) => break reason,
                Ok(Some(response)) => {
                    if in_flight.is_empty() {
                        in_flight.extend(std::iter::from_fn(|| written_calls.try_recv().ok()));
                    }
                    let Some(first) = in_flight.front_mut() else {
                        break "the server sent a response without a request".to_owned();
                    };
                    first.responses.push(response);
                    if first.responses.len() == first.requests
                        && let Some(InFlightCall { responses, result, .. }) = in_flight.pop_front()
                    {
                        in_flight_count.fetch_sub(1, Ordering::Relaxed);
                        // The caller may have given up; its response is still consumed, in order.
                        let _ = result.send(Ok(responses));
                    }
                }
                Ok(None) => match reader.read_buf(&mut buffer).await {
                    Ok(0) => break "closed by the server".to_owned(),
                    Ok(_) => {}
                    Err(error) => break error.to_string(),
                },
            }
        };
        in_flight.extend(std::iter::from_fn(|| written_calls.try_recv().ok()));
        for InFlightCall { result, .. } in in_flight {
            let _ = result.send(Err(reason.clone()));
        }
    };
    tokio::pin!(write);
    tokio::pin!(read);
    tokio::select! {
        () = &mut read => {}
        // Answers to what was written are still to come.
        () = &mut write => read.await,
    }
}

fn next_response(buffer: &mut bytes::BytesMut) -> Result<Option<Response>, String> {
    match protocol::frame_head(buffer, FRAME_LEN_MAX) {
        FrameHead::Incomplete => Ok(None),
        FrameHead::TooLarge(length) => Err(format!("a response of {length} bytes is too large")),
        FrameHead::Complete(length) => {
            let response =
                protocol::decode_response(&buffer[4..4 + length]).map_err(|error| error.to_string());
            buffer.advance(4 + length);
            response.map(Some)
        }
    }
}
