//! Response bodies: complete, or streamed.

use std::{
    fmt::Debug,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::sync::mpsc;

use super::watch_body::WatchBody;

/// Frames that a forwarded body buffers for a slow client.
const BUFFERED_FRAMES: usize = 4;

/// A streamed body failed after its first frame was sent. The stream is reset, so that no client takes a
/// truncated body for a complete one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("response body aborted")]
pub struct Aborted;

/// Result of polling a body for its next frame.
pub type PolledFrame = Poll<Option<Result<Frame<Bytes>, Aborted>>>;

/// The body of a response.
#[derive(Debug)]
pub enum Body {
    /// Complete; `None` once it is taken.
    Full(Option<Bytes>),
    /// Chunks of a producer; ends when the sender is dropped.
    Stream(mpsc::Receiver<Result<Bytes, Aborted>>),
    /// Events of a watch.
    Watch(Box<WatchBody>),
    /// Another body, transformed or observed.
    Wrapped(Box<dyn BodyWrapper>),
}

/// Transforms or observes the frames of another body, such as compression and metrics.
pub trait BodyWrapper: Debug + Send {
    /// Polls for the next frame.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame;

    /// Returns the wrapped body.
    fn inner_mut(&mut self) -> &mut Body;
}

impl Body {
    /// Returns an empty body.
    pub fn empty() -> Self {
        Self::Full(None)
    }

    /// Returns the length in bytes of a complete body.
    pub fn exact_length(&self) -> Option<u64> {
        match self {
            Self::Full(bytes) => Some(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Stream(_) | Self::Watch(_) | Self::Wrapped(_) => None,
        }
    }

    /// Makes each event of a watch a frame of its own.
    pub(crate) fn separate_events(&mut self) {
        match self {
            Self::Watch(events) => events.separate(),
            Self::Wrapped(wrapper) => wrapper.inner_mut().separate_events(),
            Self::Full(_) | Self::Stream(_) => {}
        }
    }

    /// Returns a body that makes progress on a task of its own, whether or not it is polled.
    pub(crate) fn detach(self) -> Self {
        match self {
            Self::Full(_) | Self::Stream(_) => self,
            Self::Watch(_) | Self::Wrapped(_) => Self::forward(self),
        }
    }

    /// Forwards another body as it arrives. Aborts where that one fails.
    pub fn forward<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: std::fmt::Display + Send,
    {
        let (sender, receiver) = mpsc::channel(BUFFERED_FRAMES);
        tokio::spawn(async move {
            let mut body = std::pin::pin!(body);
            loop {
                let frame = tokio::select! {
                    frame = body.frame() => frame,
                    () = sender.closed() => return,
                };
                match frame {
                    Some(Ok(frame)) => {
                        if let Ok(data) = frame.into_data()
                            && !data.is_empty()
                            && sender.send(Ok(data)).await.is_err()
                        {
                            return;
                        }
                    }
                    Some(Err(error)) => {
                        tracing::warn!(%error, "forwarded response body aborted");
                        let _ = sender.send(Err(Aborted)).await;
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
        Self::Full(Some(bytes.into()))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Aborted;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame {
        match &mut *self {
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream(chunks) => {
                chunks.poll_recv(cx).map(|chunk| chunk.map(|chunk| chunk.map(Frame::data)))
            }
            Self::Watch(events) => {
                events.poll_chunk(cx).map(|chunk| chunk.map(|(chunk, _)| Ok(Frame::data(chunk))))
            }
            Self::Wrapped(wrapper) => wrapper.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Full(None))
    }

    fn size_hint(&self) -> SizeHint {
        self.exact_length().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
