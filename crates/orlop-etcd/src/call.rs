//! From an HTTP request to the method it calls.
//!
//! Reads and writes of keys, which are nearly all calls there are, go straight to their method: the message is
//! decoded out of the frame it came in, and the answer is one frame. Every other call, and every such call that
//! is not plain (in pieces, compressed, malformed), goes through tonic's own stack, which knows all of gRPC.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response, header::CONTENT_TYPE};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use prost::Message;
use tonic::{Code, Status, service::Routes};
use tower::Service;

use crate::{kv::KvService, pb::etcdserverpb::kv_server::Kv};

/// A byte for compression and four for the length come before each message.
const PREFIX: usize = 5;
const GRPC_STATUS: &str = "grpc-status";

/// What answers the calls of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    pub(crate) kv: KvService,
    pub(crate) routes: Routes,
}

impl hyper::service::Service<Request<Incoming>> for Calls {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let patience = orlop_net::grpc::timeout(request.headers());
        let calls = self.clone();
        let answer = async move {
            match request.uri().path() {
                "/etcdserverpb.KV/Range" => calls.plain(request, |kv, m| Box::pin(kv.range(m))).await,
                "/etcdserverpb.KV/Put" => calls.plain(request, |kv, m| Box::pin(kv.put(m))).await,
                "/etcdserverpb.KV/Txn" => calls.plain(request, |kv, m| Box::pin(kv.txn(m))).await,
                "/etcdserverpb.KV/DeleteRange" => {
                    calls.plain(request, |kv, m| Box::pin(kv.delete_range(m))).await
                }
                _ => calls.routed(request.map(tonic::body::Body::new)).await,
            }
        };
        Box::pin(async move {
            Ok(match patience {
                None => answer.await,
                Some(patience) => tokio::time::timeout(patience, answer).await.unwrap_or_else(|_| {
                    Status::new(Code::DeadlineExceeded, "context deadline exceeded")
                        .into_http::<tonic::body::Body>()
                        .map(Answer::Routed)
                }),
            })
        })
    }
}

type Called<'a, A> = Pin<Box<dyn Future<Output = Result<tonic::Response<A>, Status>> + Send + 'a>>;

impl Calls {
    async fn routed(mut self, request: Request<tonic::body::Body>) -> Response<Answer> {
        match self.routes.call(request).await {
            Ok(response) => response.map(Answer::Routed),
            Err(never) => match never {},
        }
    }

    /// Calls a method of one message and one answer, if the message comes as one plain frame.
    async fn plain<Q, A>(
        self,
        request: Request<Incoming>,
        method: impl for<'a> FnOnce(&'a KvService, tonic::Request<Q>) -> Called<'a, A>,
    ) -> Response<Answer>
    where
        Q: Message + Default,
        A: Message,
    {
        let (head, mut body) = request.into_parts();
        let mut seen = Vec::with_capacity(1);
        // A message and then the end, which may come by itself.
        while seen.len() < 2
            && !body.is_end_stream()
            && let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await
        {
            seen.push(frame);
        }
        let message = match &seen[..] {
            [Ok(frame)] => frame.data_ref().and_then(whole).and_then(|bytes| Q::decode(bytes).ok()),
            _ => None,
        };
        let Some(message) = message else {
            let body = Resumed { seen: seen.into_iter(), rest: body };
            return self.routed(Request::from_parts(head, tonic::body::Body::new(body))).await;
        };
        match method(&self.kv, tonic::Request::new(message)).await {
            Ok(answer) => {
                let mut response = Response::new(Answer::Plain(Some(encoded(answer.get_ref()))));
                let grpc = HeaderValue::from_static("application/grpc");
                response.headers_mut().insert(CONTENT_TYPE, grpc);
                response
            }
            Err(status) => status.into_http::<tonic::body::Body>().map(Answer::Routed),
        }
    }
}

/// The message in a frame that holds nothing else.
fn whole(frame: &Bytes) -> Option<Bytes> {
    let [0, length @ ..] = *frame.first_chunk::<PREFIX>()? else { return None };
    let message = frame.slice(PREFIX..);
    (message.len() == u32::from_be_bytes(length) as usize).then_some(message)
}

fn encoded(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(PREFIX + length);
    frame.put_u8(0);
    frame.put_u32(length as u32);
    message.encode_raw(&mut frame);
    frame.freeze()
}

/// The body of an answer.
#[derive(Debug)]
pub(crate) enum Answer {
    /// One message, and after it the word that all is well.
    Plain(Option<Bytes>),
    /// Whatever tonic has to say.
    Routed(tonic::body::Body),
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match self.get_mut() {
            Self::Plain(message @ Some(_)) => Poll::Ready(message.take().map(|data| Ok(Frame::data(data)))),
            answer @ Self::Plain(None) => {
                *answer = Self::Routed(tonic::body::Body::empty());
                let mut trailers = HeaderMap::with_capacity(1);
                trailers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
                Poll::Ready(Some(Ok(Frame::trailers(trailers))))
            }
            Self::Routed(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Routed(body) if body.is_end_stream())
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match self {
            Self::Plain(_) => http_body::SizeHint::default(),
            Self::Routed(body) => body.size_hint(),
        }
    }
}

/// A request's body after somebody has looked at its first frames.
struct Resumed {
    seen: std::vec::IntoIter<Result<Frame<Bytes>, hyper::Error>>,
    rest: Incoming,
}

impl Body for Resumed {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.seen.next() {
            Some(frame) => Poll::Ready(Some(frame)),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }
}
