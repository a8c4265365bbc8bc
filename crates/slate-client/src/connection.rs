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
type Answer = Result<Vec<Response>, String>;

/// A call that is to be sent: frames of one or more requests.
struct Pending {
    frames: Vec<u8>,
    waiting: Waiting,
}

/// A call whose responses are to come.
struct Waiting {
    requests: usize,
    responses: Vec<Response>,
    answer: oneshot::Sender<Answer>,
}

/// A connection. It closes when it is dropped and what was sent is answered.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    requests: mpsc::Sender<Pending>,
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Pending")
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
    pub(crate) async fn call(&self, frames: Vec<u8>, requests: usize) -> Answer {
        let (answer, answered) = oneshot::channel();
        let closed = || "connection closed".to_owned();
        let waiting = Waiting { requests, responses: Vec::with_capacity(requests), answer };
        self.requests.send(Pending { frames, waiting }).await.map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }
}

async fn run(stream: Box<dyn Stream>, mut requests: mpsc::Receiver<Pending>) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let (awaiting, mut awaited) = mpsc::unbounded_channel::<Waiting>();
    // Calls that are sent and not answered.
    let unanswered = &AtomicUsize::new(0);
    let write = async move {
        let mut buffer = Vec::new();
        while let Some(pending) = requests.recv().await {
            if unanswered.load(Ordering::Relaxed) > 0 {
                // Several use the connection: whoever is ready to call does so first, and is sent together with this.
                tokio::task::yield_now().await;
            }
            buffer.clear();
            let mut next = Some(pending);
            while let Some(Pending { frames, waiting }) = next.take() {
                buffer.extend_from_slice(&frames);
                unanswered.fetch_add(1, Ordering::Relaxed);
                // The reader's half is gone only when the connection is.
                if awaiting.send(waiting).is_err() {
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
        let mut waiting: VecDeque<Waiting> = VecDeque::new();
        let reason = loop {
            match next_response(&mut buffer) {
                Err(reason) => break reason,
                Ok(Some(response)) => {
                    if waiting.is_empty() {
                        waiting.extend(std::iter::from_fn(|| awaited.try_recv().ok()));
                    }
                    let Some(first) = waiting.front_mut() else {
                        break "the server sent a response without a request".to_owned();
                    };
                    first.responses.push(response);
                    if first.responses.len() == first.requests
                        && let Some(Waiting { responses, answer, .. }) = waiting.pop_front()
                    {
                        unanswered.fetch_sub(1, Ordering::Relaxed);
                        // The caller may have given up; its answer still takes its turn.
                        let _ = answer.send(Ok(responses));
                    }
                }
                Ok(None) => match reader.read_buf(&mut buffer).await {
                    Ok(0) => break "closed by the server".to_owned(),
                    Ok(_) => {}
                    Err(error) => break error.to_string(),
                },
            }
        };
        waiting.extend(std::iter::from_fn(|| awaited.try_recv().ok()));
        for Waiting { answer, .. } in waiting {
            let _ = answer.send(Err(reason.clone()));
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
