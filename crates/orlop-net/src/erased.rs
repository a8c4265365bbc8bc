//! Erased types of byte streams, services and bodies.
//!
//! A service costs one allocation for its future and one for its body, and spares every front its own copy of hyper.

use std::{error::Error, future::Future, pin::Pin, sync::Arc};

use ::http::{Request, Response};
use bytes::Bytes;
use futures_util::FutureExt;
use http_body::Body;
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, service::Service};
use tokio::io::{AsyncRead, AsyncWrite};

type BoxError = Box<dyn Error + Send + Sync>;
type Answer =
    Pin<Box<dyn Future<Output = Result<Response<UnsyncBoxBody<Bytes, BoxError>>, BoxError>> + Send>>;

/// A connection that is being served.
pub(crate) type Served = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Any byte stream.
pub type ErasedStream = Box<dyn ByteStream>;

/// A byte stream in both directions.
pub trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for T {}

/// The service of any front.
#[derive(Clone)]
pub(crate) struct ErasedService(Arc<dyn Fn(Request<Incoming>) -> Answer + Send + Sync>);

impl ErasedService {
    pub(crate) fn new<S, B>(service: S) -> Self
    where
        S: Service<Request<Incoming>, Response = Response<B>, Future: Send + 'static> + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        // Mapped, not awaited: an `async` block would copy the service's future, which has kilobytes, when it is built and
        // again when it is first polled.
        Self(Arc::new(move |request| {
            Box::pin(service.call(request).map(|answered| {
                let response = answered.map_err(Into::into)?;
                Ok(response.map(|body| UnsyncBoxBody::new(body.map_err(Into::into))))
            }))
        }))
    }
}

impl Service<Request<Incoming>> for ErasedService {
    type Response = Response<UnsyncBoxBody<Bytes, BoxError>>;
    type Error = BoxError;
    type Future = Answer;

    fn call(&self, request: Request<Incoming>) -> Answer {
        (self.0)(request)
    }
}
