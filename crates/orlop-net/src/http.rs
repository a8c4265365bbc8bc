//! HTTP/1.1 and HTTP/2 on one connection.
//!
//! Byte streams, services and bodies are erased types here: hyper's connections are compiled once, for all fronts.

use std::{error::Error, future::Future, pin::Pin, sync::Arc, time::Duration};

use ::http::{Request, Response};
use bytes::Bytes;
use http_body::Body;
use hyper::{body::Incoming, service::Service};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::{
        conn::auto::{Builder, UpgradeableConnection},
        graceful::Watcher,
    },
};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    coalesce::CoalescingStream,
    erased::{ErasedService, ErasedStream, Served},
    executor::{ConnectionTask, Inline, RequestExecutor},
    stream::Stream,
};

pub use crate::coalesce::WriteBarrier;

/// HTTP versions of a front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocols {
    /// HTTP/1.1 and HTTP/2.
    Http1And2,
    /// HTTP/2 only, for gRPC.
    Http2,
}

/// Scheduling of the requests of an HTTP/2 connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduling {
    /// On the connection's task until they first wait, then on a task of their own. For requests of uneven cost.
    Inline,
    /// On the connection's task to their end. For many small requests that a group commit completes together.
    ConnectionTask,
}

/// Limits and timeouts of an HTTP connection.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// Versions served.
    pub protocols: Protocols,
    /// Scheduling of requests.
    pub scheduling: Scheduling,
    /// Deadline of an HTTP/1.1 request's headers.
    pub header_timeout: Duration,
    /// Bytes of a request's headers.
    pub header_bytes_max: u32,
    /// Concurrent streams of an HTTP/2 connection.
    pub streams_max: u32,
    /// Interval of HTTP/2 PINGs to an idle client.
    pub keep_alive_interval: Duration,
    /// Deadline of the reply to a PING, after which the connection is closed.
    pub keep_alive_timeout: Duration,
    /// Flow-control windows of a stream and of a connection; hyper's own if `None`.
    pub windows: Option<Windows>,
    /// Adds a `date` header to responses. gRPC has no use for it.
    pub date_header: bool,
    /// Barrier before each write of connections whose writes are coalesced.
    pub write_barrier: Option<Arc<dyn WriteBarrier>>,
}

/// HTTP/2 flow-control windows, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Windows {
    /// Of one stream.
    pub stream: u32,
    /// Of the connection.
    pub connection: u32,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            protocols: Protocols::Http1And2,
            scheduling: Scheduling::Inline,
            header_timeout: Duration::from_secs(32),
            header_bytes_max: 64 << 10,
            // A client with many watches needs many streams.
            streams_max: 1000,
            keep_alive_interval: Duration::from_secs(30),
            keep_alive_timeout: Duration::from_secs(20),
            windows: None,
            date_header: true,
            write_barrier: None,
        }
    }
}

/// Serves an accepted connection until its end, or until `watcher` shuts it down.
///
/// Writes are coalesced where the client negotiated HTTP/2 by ALPN ([`coalesces_writes`]). An HTTP/1.1 connection may be upgraded, and is then
/// driven by a task that would not flush the buffer.
pub async fn serve_connection<S, B>(stream: Stream, options: &HttpOptions, service: S, watcher: Watcher)
where
    S: Service<Request<Incoming>, Response = Response<B>, Future: Send + 'static> + Send + Sync + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    serve_accepted(stream, options.clone(), ErasedService::new(service), End::Watched(watcher)).await;
}

/// Returns true if the writes of a connection are coalesced, so that they pass [`HttpOptions::write_barrier`].
pub fn coalesces_writes(stream: &Stream) -> bool {
    stream.negotiated_http2()
}

/// As [`serve_connection`], and tells the client to go away once `goaway` resolves: open requests end as they would, and
/// the client opens another connection for new ones. `goaway` must also resolve on shutdown; `watcher` is only held.
pub async fn serve_connection_until<S, B>(
    stream: Stream,
    options: &HttpOptions,
    service: S,
    watcher: Watcher,
    goaway: impl Future<Output = ()> + Send + 'static,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Future: Send + 'static> + Send + Sync + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let end = End::Goaway(Box::pin(goaway), watcher);
    serve_accepted(stream, options.clone(), ErasedService::new(service), end).await;
}

/// Serves any byte stream, such as one within the process.
pub async fn serve_stream<S, B>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    options: &HttpOptions,
    service: S,
    watcher: Watcher,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Future: Send + 'static> + Send + Sync + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let (service, end) = (ErasedService::new(service), End::Watched(watcher));
    serve_bytes(Box::new(stream), options.clone(), service, end).await;
}

/// End of a connection that its client keeps open.
enum End {
    /// A graceful shutdown of the front.
    Watched(Watcher),
    /// The client is told to go away once the future resolves. The shutdown only waits.
    Goaway(Pin<Box<dyn Future<Output = ()> + Send>>, Watcher),
}

fn serve_accepted(stream: Stream, options: HttpOptions, service: ErasedService, end: End) -> Served {
    Box::pin(async move {
        if coalesces_writes(&stream) {
            let coalescing = CoalescingStream::new(stream, options.write_barrier.clone());
            let options = HttpOptions { protocols: Protocols::Http2, ..options };
            let served = serve_bytes(Box::new(coalescing.clone()), options, service, end);
            coalescing.drive(served).await;
        } else {
            serve_bytes(Box::new(stream), options, service, end).await;
        }
    })
}

fn serve_bytes(stream: ErasedStream, options: HttpOptions, service: ErasedService, end: End) -> Served {
    Box::pin(async move {
        let executor = match options.scheduling {
            Scheduling::Inline => RequestExecutor::Inline(Inline::default()),
            Scheduling::ConnectionTask => RequestExecutor::ConnectionTask(ConnectionTask::default()),
        };
        let builder = builder(executor.clone(), &options);
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).into_owned();
        let served = async move {
            match end {
                End::Watched(watcher) => log_end(watcher.watch(connection).await),
                End::Goaway(goaway, watcher) => {
                    until(connection, goaway).await;
                    drop(watcher);
                }
            }
        };
        match executor {
            RequestExecutor::Inline(_) => served.await,
            RequestExecutor::ConnectionTask(executor) => executor.drive(served).await,
        }
    })
}

type HttpConnection = UpgradeableConnection<'static, TokioIo<ErasedStream>, ErasedService, RequestExecutor>;

/// Drives a connection, gracefully to its end once `goaway` resolves.
async fn until(connection: HttpConnection, mut goaway: Pin<Box<dyn Future<Output = ()> + Send>>) {
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return log_end(ended),
        () = goaway.as_mut() => connection.as_mut().graceful_shutdown(),
    }
    log_end(connection.await);
}

fn log_end(ended: Result<(), Box<dyn Error + Send + Sync>>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}

fn builder<E>(executor: E, options: &HttpOptions) -> Builder<E> {
    let mut builder = Builder::new(executor);
    if options.protocols == Protocols::Http2 {
        builder = builder.http2_only();
    }
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(options.header_timeout)
        // Room for the request line and the start of a body beside the headers.
        .max_buf_size(options.header_bytes_max as usize * 4)
        .auto_date_header(options.date_header)
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(options.keep_alive_interval)
        .keep_alive_timeout(options.keep_alive_timeout)
        .max_concurrent_streams(options.streams_max)
        .max_header_list_size(options.header_bytes_max)
        .auto_date_header(options.date_header);
    if let Some(Windows { stream, connection }) = options.windows {
        builder.http2().initial_stream_window_size(stream).initial_connection_window_size(connection);
    }
    builder
}
