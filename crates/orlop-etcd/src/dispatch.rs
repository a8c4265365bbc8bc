//! Dispatches HTTP requests to gRPC methods.
//!
//! Unary KV methods have a fast path: the message is decoded from the one frame it arrived in, and the response is one
//! frame, without tonic's router, layers and 8 KiB buffers. Every other request goes through tonic: other methods, and
//! messages that are fragmented, compressed or malformed.

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

use crate::{gateway, kv::KvService, pb::etcdserverpb::kv_server::Kv};

/// A message's prefix: one byte for compression, four for the length.
const PREFIX_BYTES: usize = 5;
const GRPC_STATUS: &str = "grpc-status";

/// The services of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Dispatcher {
    pub(crate) kv: KvService,
    pub(crate) routes: Routes,
}

impl hyper::service::Service<Request<Incoming>> for Dispatcher {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let deadline = orlop_net::grpc::timeout(request.headers());
        let dispatcher = self.clone();
        let response = async move {
            match request.uri().path() {
                "/etcdserverpb.KV/Range" => dispatcher.unary(request, |kv, m| Box::pin(kv.range(m))).await,
                "/etcdserverpb.KV/Put" => dispatcher.unary(request, |kv, m| Box::pin(kv.put(m))).await,
                "/etcdserverpb.KV/Txn" => dispatcher.unary(request, |kv, m| Box::pin(kv.txn(m))).await,
                "/etcdserverpb.KV/DeleteRange" => {
                    dispatcher.unary(request, |kv, m| Box::pin(kv.delete_range(m))).await
                }
                path if path.starts_with(gateway::PREFIX) => {
                    let limit = dispatcher.kv.node.options.max_request_bytes;
                    gateway::call(dispatcher.routes, request, limit).await.map(ResponseBody::Routed)
                }
                _ => dispatcher.routed(request.map(tonic::body::Body::new)).await,
            }
        };
        Box::pin(async move {
            Ok(match deadline {
                None => response.await,
                Some(deadline) => tokio::time::timeout(deadline, response).await.unwrap_or_else(|_| {
                    Status::new(Code::DeadlineExceeded, "context deadline exceeded")
                        .into_http::<tonic::body::Body>()
                        .map(ResponseBody::Routed)
                }),
            })
        })
    }
}

type MethodFuture<'a, A> = Pin<Box<dyn Future<Output = Result<tonic::Response<A>, Status>> + Send + 'a>>;

impl Dispatcher {
    /// Handles a request with tonic.
    async fn routed(mut self, request: Request<tonic::body::Body>) -> Response<ResponseBody> {
        match self.routes.call(request).await {
            Ok(response) => response.map(ResponseBody::Routed),
            Err(never) => match never {},
        }
    }

    /// Invokes a unary method directly if its message is one uncompressed frame, and through tonic otherwise.
    async fn unary<Q, A>(
        self,
        request: Request<Incoming>,
        method: impl for<'a> FnOnce(&'a KvService, tonic::Request<Q>) -> MethodFuture<'a, A>,
    ) -> Response<ResponseBody>
    where
        Q: Message + Default,
        A: Message,
    {
        let (head, mut body) = request.into_parts();
        let mut frames = Vec::with_capacity(1);
        // A message, then the end of the stream, which may be a frame of its own.
        while frames.len() < 2
            && !body.is_end_stream()
            && let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await
        {
            frames.push(frame);
        }
        let message = match &frames[..] {
            [Ok(frame)] => frame.data_ref().and_then(message_of).and_then(|bytes| Q::decode(bytes).ok()),
            _ => None,
        };
        let Some(message) = message else {
            let body = ReplayedBody { frames: frames.into_iter(), rest: body };
            return self.routed(Request::from_parts(head, tonic::body::Body::new(body))).await;
        };
        match method(&self.kv, tonic::Request::new(message)).await {
            Ok(message) => {
                let mut response = Response::new(ResponseBody::Unary(Some(encode(message.get_ref()))));
                let grpc = HeaderValue::from_static("application/grpc");
                response.headers_mut().insert(CONTENT_TYPE, grpc);
                response
            }
            Err(status) => status.into_http::<tonic::body::Body>().map(ResponseBody::Routed),
        }
    }
}

/// Returns the message of a frame that holds exactly one, uncompressed.
fn message_of(frame: &Bytes) -> Option<Bytes> {
    let [0, length @ ..] = *frame.first_chunk::<PREFIX_BYTES>()? else { return None };
    let message = frame.slice(PREFIX_BYTES..);
    (message.len() == u32::from_be_bytes(length) as usize).then_some(message)
}

/// Encodes a message with its prefix.
fn encode(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(PREFIX_BYTES + length);
    frame.put_u8(0);
    frame.put_u32(length as u32);
    message.encode_raw(&mut frame);
    frame.freeze()
}

/// Body of a response.
#[derive(Debug)]
pub(crate) enum ResponseBody {
    /// One message, then trailers with status OK.
    Unary(Option<Bytes>),
    /// A response of tonic's.
    Routed(tonic::body::Body),
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match self.get_mut() {
            Self::Unary(message @ Some(_)) => Poll::Ready(message.take().map(|data| Ok(Frame::data(data)))),
            body @ Self::Unary(None) => {
                *body = Self::Routed(tonic::body::Body::empty());
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
            Self::Unary(_) => http_body::SizeHint::default(),
            Self::Routed(body) => body.size_hint(),
        }
    }
}

/// A request's body whose first frames have been read already.
struct ReplayedBody {
    frames: std::vec::IntoIter<Result<Frame<Bytes>, hyper::Error>>,
    rest: Incoming,
}

impl Body for ReplayedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.frames.next() {
            Some(frame) => Poll::Ready(Some(frame)),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }
}
