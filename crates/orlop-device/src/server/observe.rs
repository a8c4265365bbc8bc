//! Counts calls and messages, for metrics and channelz.
//!
//! Messages are counted in the byte stream, by gRPC's framing (one byte, a length, the message), so that every service is
//! counted, generated ones included.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Request, Response};
use http_body::{Frame, SizeHint};
use tonic::{Code, Status, body::Body};
use tower::Service;

use super::{
    channelz::OpenSocket,
    metrics::{Method, Metrics},
    routes::Routes,
};

/// A middleware that counts the calls of all routes.
#[derive(Clone, Debug)]
pub(crate) struct Observe {
    pub(crate) routes: Routes,
    pub(crate) metrics: Arc<Metrics>,
}

impl Service<Request<Body>> for Observe {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let socket = request.extensions().get::<Arc<OpenSocket>>().cloned();
        let call = Call::begin(self.metrics.method(request.uri().path()), socket);
        let received = Received { method: call.method.clone(), socket: call.socket.clone() };
        let request = request.map(|body| Counted::wrap(body, Count::Received(received)));
        let response = self.routes.call(request);
        Box::pin(async move {
            let response = response.await?;
            let mut call = call;
            // A call that fails immediately has its status in the headers, and no body.
            call.set_status(response.headers());
            Ok(response.map(|body| Counted::wrap(body, Count::Sent(call))))
        })
    }
}

/// One call. It ends when its response body is dropped.
struct Call {
    method: Arc<Method>,
    socket: Option<Arc<OpenSocket>>,
    began: Instant,
    code: Option<Code>,
}

impl Call {
    fn begin(method: Arc<Method>, socket: Option<Arc<OpenSocket>>) -> Self {
        method.started.inc();
        if let Some(socket) = &socket {
            socket.call_started();
        }
        Self { method, socket, began: Instant::now(), code: None }
    }

    fn set_status(&mut self, headers: &HeaderMap) {
        if let Some(status) = Status::from_header_map(headers) {
            self.code = Some(status.code());
        }
    }

    fn sent(&self, messages: u64) {
        if messages > 0 {
            self.method.sent.inc_by(messages);
            if let Some(socket) = &self.socket {
                socket.sent(messages);
            }
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // A call dropped before its status was sent was cancelled by the client.
        let code = self.code.unwrap_or(Code::Cancelled);
        self.method.handled(code);
        self.method.seconds.observe(self.began.elapsed().as_secs_f64());
        if let Some(socket) = &self.socket {
            socket.call_ended(code == Code::Ok);
        }
    }
}

struct Received {
    method: Arc<Method>,
    socket: Option<Arc<OpenSocket>>,
}

impl Received {
    fn count(&self, messages: u64) {
        if messages > 0 {
            self.method.received.inc_by(messages);
            if let Some(socket) = &self.socket {
                socket.received(messages);
            }
        }
    }
}

/// Parses gRPC's framing in chunks of any size.
#[derive(Debug, Default)]
struct Frames {
    header: [u8; 5],
    header_length: usize,
    message_left: usize,
}

impl Frames {
    /// Returns the number of messages that begin in a chunk.
    fn count(&mut self, mut chunk: &[u8]) -> u64 {
        let mut messages = 0;
        while !chunk.is_empty() {
            if self.message_left > 0 {
                let skip = self.message_left.min(chunk.len());
                self.message_left -= skip;
                chunk = &chunk[skip..];
                continue;
            }
            self.header[self.header_length] = chunk[0];
            self.header_length += 1;
            chunk = &chunk[1..];
            if self.header_length == self.header.len() {
                let [_, length @ ..] = self.header;
                self.message_left = u32::from_be_bytes(length) as usize;
                self.header_length = 0;
                messages += 1;
            }
        }
        messages
    }
}

/// Counters of a body's messages.
enum Count {
    Received(Received),
    Sent(Call),
}

/// A body that counts its messages.
struct Counted {
    body: Body,
    frames: Frames,
    count: Count,
}

impl Counted {
    fn wrap(body: Body, count: Count) -> Body {
        Body::new(Self { body, frames: Frames::default(), count })
    }

    fn count_frame(&mut self, frame: &Frame<Bytes>) {
        if let Some(data) = frame.data_ref() {
            let messages = self.frames.count(data);
            match &self.count {
                Count::Received(received) => received.count(messages),
                Count::Sent(call) => call.sent(messages),
            }
        }
        if let (Some(trailers), Count::Sent(call)) = (frame.trailers_ref(), &mut self.count) {
            call.set_status(trailers);
        }
    }
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame {
            self.count_frame(frame);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_counted_across_chunk_boundaries() {
        let mut bytes = Vec::new();
        for length in [0u32, 1, 5, 300] {
            bytes.push(0);
            bytes.extend(length.to_be_bytes());
            bytes.extend(vec![7; length as usize]);
        }
        for size in [1, 2, 3, 7, 64, bytes.len()] {
            let mut frames = Frames::default();
            let counted: u64 = bytes.chunks(size).map(|chunk| frames.count(chunk)).sum();
            assert_eq!(counted, 4, "in chunks of {size}");
        }
    }
}
