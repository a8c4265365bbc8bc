//! Request bodies.

use std::{
    error::Error,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use hyper::body::Incoming;

type BoxError = Box<dyn Error + Send + Sync>;

/// The body of a request. One type for clients on the network and in the process: the chain is compiled once.
#[derive(Debug)]
pub(crate) enum RequestBody {
    /// From a connection.
    Incoming(Incoming),
    /// From a client in the same process.
    InProcess(UnsyncBoxBody<Bytes, BoxError>),
}

impl RequestBody {
    /// Returns the body of a client in the same process.
    pub(crate) fn in_process<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self::InProcess(UnsyncBoxBody::new(body.map_err(Into::into)))
    }
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut *self {
            Self::Incoming(body) => {
                Pin::new(body).poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(Into::into)))
            }
            Self::InProcess(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Incoming(body) => body.is_end_stream(),
            Self::InProcess(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Incoming(body) => body.size_hint(),
            Self::InProcess(body) => body.size_hint(),
        }
    }
}
