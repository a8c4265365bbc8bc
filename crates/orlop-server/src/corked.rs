//! A connection whose small writes wait for one another.
//!
//! HTTP/2 flushes after nearly every frame, and TLS makes a record and a system call of each: with many
//! streams on a connection, that is most of what an answer costs. Here what is written waits until it fills
//! a buffer, or until the task that drives the connection has nothing more to do for now.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that wait at most: some records of TLS, which then leave in one system call.
const WAITING_MAX: usize = 64 << 10;
/// A buffer that is kept while nothing waits is no larger than this.
const KEPT: usize = 2 << 10;
/// How long a client may take to hear the last of a connection that is over.
const FAREWELL: Duration = Duration::from_secs(5);

/// A stream with a cork. Clones are the same stream.
#[derive(Debug)]
pub(crate) struct Corked<S>(Arc<Mutex<Inner<S>>>);

#[derive(Debug)]
struct Inner<S> {
    stream: S,
    waiting: BytesMut,
    /// The stream has been given bytes that it may still hold.
    unflushed: bool,
}

impl<S> Clone for Corked<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Corked<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self(Arc::new(Mutex::new(Inner { stream, waiting: BytesMut::new(), unflushed: false })))
    }

    /// Runs a task that drives the connection; whenever it pauses, what it has written leaves.
    pub(crate) async fn drive<T>(self, task: impl Future<Output = T>) -> T {
        let mut task = std::pin::pin!(task);
        let result = std::future::poll_fn(|cx| {
            let polled = task.as_mut().poll(cx);
            // Trouble with the stream is the task's own to find, when it next reads or writes.
            let _ = self.inner().uncork(cx);
            polled
        })
        .await;
        let farewell = std::future::poll_fn(|cx| self.inner().uncork(cx));
        let _ = tokio::time::timeout(FAREWELL, farewell).await;
        result
    }

    fn inner(&self) -> MutexGuard<'_, Inner<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: AsyncWrite + Unpin> Inner<S> {
    /// Hands what waits to the stream.
    fn pour(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.waiting.is_empty() {
            let poured = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.waiting))?;
            if poured == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.waiting.advance(poured);
            self.unflushed = true;
        }
        Poll::Ready(Ok(()))
    }

    /// Sees to it that everything leaves.
    fn uncork(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.pour(cx))?;
        if self.unflushed {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.unflushed = false;
        }
        // What has been read of a buffer does not count as its capacity until it is claimed again.
        if self.waiting.try_reclaim(KEPT + 1) {
            self.waiting = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }

    /// Takes in slices as far as there is room; how many bytes that was.
    fn fill(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if self.waiting.len() >= WAITING_MAX {
            ready!(self.pour(cx))?;
        }
        let mut filled = 0;
        for slice in slices {
            let room = WAITING_MAX - self.waiting.len();
            if room == 0 {
                break;
            }
            let part = slice.get(..room).unwrap_or(slice);
            if self.waiting.capacity() - self.waiting.len() < part.len() {
                // Either little will wait, or as much as may.
                let much = self.waiting.len() + part.len() > KEPT;
                self.waiting.reserve(if much { room } else { KEPT - self.waiting.len() });
            }
            self.waiting.extend_from_slice(part);
            filled += part.len();
        }
        Poll::Ready(Ok(filled))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Corked<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner().stream).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Corked<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.inner().fill(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.inner().fill(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Says that all has left, which it will have when the task pauses.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.inner();
        ready!(inner.uncork(cx))?;
        Pin::new(&mut inner.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn what_is_written_leaves_when_the_task_pauses() {
        let (here, mut there) = tokio::io::duplex(1 << 20);
        let corked = Corked::new(here);
        let mut stream = corked.clone();
        let told = tokio::spawn(corked.drive(async move {
            stream.write_all(b"one ").await.unwrap();
            stream.flush().await.unwrap();
            stream.write_all(b"two").await.unwrap();
            let mut answer = [0; 2];
            stream.read_exact(&mut answer).await.unwrap();
            stream.write_all(b" three").await.unwrap();
            answer
        }));
        let mut heard = [0; 7];
        there.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"one two");
        there.write_all(b"ok").await.unwrap();
        assert_eq!(&told.await.unwrap(), b"ok");
        let mut heard = String::new();
        there.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, " three");
    }

    #[tokio::test]
    async fn a_long_write_is_taken_in_parts_and_a_full_stream_holds_it_back() {
        let (here, mut there) = tokio::io::duplex(1000);
        let sent: Vec<u8> = (0..WAITING_MAX * 3 + 7).map(|number| number as u8).collect();
        let corked = Corked::new(here);
        let mut stream = corked.clone();
        let long = sent.clone();
        let task = tokio::spawn(corked.drive(async move { stream.write_all(&long).await.unwrap() }));
        let mut heard = Vec::new();
        there.read_to_end(&mut heard).await.unwrap();
        task.await.unwrap();
        assert!(heard == sent, "{} bytes of {}", heard.len(), sent.len());
    }

    #[tokio::test]
    async fn a_large_buffer_is_not_kept_while_nothing_waits() {
        let (here, mut there) = tokio::io::duplex(WAITING_MAX * 2);
        let corked = Corked::new(here);
        for length in [WAITING_MAX, WAITING_MAX - 7, KEPT + 1] {
            let (mut stream, sent) = (corked.clone(), vec![b'x'; length]);
            corked.clone().drive(async { stream.write_all(&sent).await.unwrap() }).await;
            there.read_exact(&mut vec![0; length]).await.unwrap();
            assert!(!corked.inner().waiting.try_reclaim(KEPT + 1), "{length}");
        }
    }
}
