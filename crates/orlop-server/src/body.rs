//! Bodies of answers: whole, or as they come.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::sync::mpsc;

use crate::{compression::Gzip, events::Events, metrics::Measured};

/// Pieces of a body that may wait for a slow client.
const PIECES: usize = 4;

/// Why a body that has begun does not come to its end: something failed on the way. The connection or the
/// stream is broken off, so that nobody takes what has come for all there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer was cut short")]
pub struct Broken;

/// The body of an answer.
#[derive(Debug)]
pub enum Body {
    /// All of it.
    Whole(Option<Bytes>),
    /// Piece by piece; it ends when the sender is dropped, or breaks off.
    Stream(mpsc::Receiver<Result<Bytes, Broken>>),
    /// What a watch tells, as it happens.
    Events(Box<Events>),
    /// Compressed on the way.
    Gzip(Box<Gzip>),
    /// Counted on the way.
    Measured(Box<Measured>),
}

impl Body {
    /// No body.
    pub fn empty() -> Self {
        Self::Whole(None)
    }

    /// How long it is, where that is known.
    pub fn length(&self) -> Option<u64> {
        match self {
            Self::Whole(bytes) => Some(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Stream(_) | Self::Events(_) | Self::Gzip(_) | Self::Measured(_) => None,
        }
    }
}

impl Body {
    /// Sees to it that each event of a watch is a frame by itself.
    pub(crate) fn separate_events(&mut self) {
        match self {
            Self::Events(events) => events.separate(),
            Self::Measured(measured) => measured.body_mut().separate_events(),
            Self::Whole(_) | Self::Stream(_) | Self::Gzip(_) => {}
        }
    }

    /// A body that comes along whether or not anybody looks at it meanwhile.
    pub(crate) fn apart(self) -> Self {
        match self {
            Self::Whole(_) | Self::Stream(_) => self,
            Self::Events(_) | Self::Gzip(_) | Self::Measured(_) => Self::passed_on(self),
        }
    }

    /// A body that comes from somewhere else, passed on as it comes. It breaks off where that one does.
    pub fn passed_on<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: std::fmt::Display + Send,
    {
        let (sender, receiver) = mpsc::channel(PIECES);
        tokio::spawn(async move {
            let mut body = std::pin::pin!(body);
            loop {
                let frame = tokio::select! {
                    frame = body.frame() => frame,
                    () = sender.closed() => return,
                };
                match frame {
                    Some(Ok(frame)) => {
                        if let Ok(piece) = frame.into_data()
                            && sender.send(Ok(piece)).await.is_err()
                        {
                            return;
                        }
                    }
                    Some(Err(error)) => {
                        tracing::warn!(%error, "an answer from elsewhere broke off");
                        let _ = sender.send(Err(Broken)).await;
                        return;
                    }
                    None => return,
                }
            }
        });
        Self::Stream(receiver)
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        Self::Whole(Some(bytes.into()))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match &mut *self {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream(pieces) => {
                pieces.poll_recv(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
            }
            Self::Events(events) => {
                events.poll_piece(cx).map(|piece| piece.map(|(piece, _)| Ok(Frame::data(piece))))
            }
            Self::Gzip(gzip) => gzip.poll_frame(cx),
            Self::Measured(measured) => measured.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        self.length().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
