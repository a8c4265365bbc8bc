//! One connection, with every call on it in one task.
//!
//! A commit answers many calls at once. If each call had a task of its own, each answer would wake that task,
//! and that the connection's, once for every call. Here they wake one task once: it finishes all the calls
//! that can be, and then writes what they say in one piece.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{Arc, Mutex, PoisonError},
    task::Poll,
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::{conn::auto::Builder, graceful::Watcher},
};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{call::Calls, node::Options};

/// How long a quiet client may take to give a sign of life.
const ANSWER: Duration = Duration::from_secs(20);
/// What a client may send before it has been read.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;

/// Serves a connection to its end, or until `watcher` is told to stop.
pub(crate) async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    calls: Calls,
    watcher: Watcher,
) {
    let Options { keep_alive, max_streams, .. } = calls.kv.node.options;
    let arrivals = Arrivals::default();
    let mut builder = Builder::new(arrivals.clone());
    builder
        .http1()
        .timer(TokioTimer::new())
        .http2()
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .max_concurrent_streams(max_streams)
        .keep_alive_interval(keep_alive)
        .keep_alive_timeout(ANSWER.min(keep_alive))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    let connection = builder.serve_connection(TokioIo::new(stream), calls).into_owned();
    let mut connection = pin!(watcher.watch(connection));
    let mut under_way = FuturesUnordered::new();
    let ended = std::future::poll_fn(|cx| {
        loop {
            arrivals.move_into(&mut under_way);
            while let Poll::Ready(Some(())) = under_way.poll_next_unpin(cx) {}
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(ended);
            }
            // Calls that have come with this poll may be answered at once.
            if arrivals.is_empty() {
                return Poll::Pending;
            }
        }
    });
    if let Err(error) = ended.await {
        tracing::debug!(%error, "connection ended");
    }
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Calls that the connection has taken off the wire, on their way to where they run.
#[derive(Clone, Default)]
struct Arrivals(Arc<Mutex<Vec<Work>>>);

impl Arrivals {
    fn move_into(&self, under_way: &mut FuturesUnordered<Work>) {
        under_way.extend(self.0.lock().unwrap_or_else(PoisonError::into_inner).drain(..));
    }

    fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Arrivals {
    fn execute(&self, future: F) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::pin(future));
    }
}
