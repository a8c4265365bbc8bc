//! Write coalescing.
//!
//! h2 flushes after nearly every frame, and TLS makes a record and a system call of each: with many streams on a
//! connection, that is most of a response's cost. A [`CoalescingStream`] buffers small writes until the buffer is full
//! or the task that drives the connection goes idle.

use std::{
    future::Future,
    io::{self, IoSlice},
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::busy;

/// Buffered bytes at most: several TLS records, which then leave in one system call.
const BUFFER_BYTES: usize = 64 << 10;
/// Capacity that an idle connection keeps at most.
const IDLE_BUFFER_BYTES: usize = 2 << 10;
/// Deadline of the last flush of a finished connection.
const FINAL_FLUSH: Duration = Duration::from_secs(5);

/// Something that must have happened before the bytes of a response leave: an audit log is written.
pub trait WriteBarrier: std::fmt::Debug + Send + Sync {
    /// Brings about all that was promised so far. Returns a future if that has to be waited for.
    fn pass(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>>;
}

/// A stream that buffers writes. Clones share the stream.
#[derive(Debug)]
pub(crate) struct CoalescingStream<S>(Arc<Mutex<Inner<S>>>);

#[derive(Debug)]
struct Inner<S> {
    stream: S,
    buffer: BytesMut,
    /// The stream accepted bytes that it may still buffer.
    unflushed: bool,
    barrier: Option<Arc<dyn WriteBarrier>>,
    /// Resolves once the barrier lets bytes pass that were buffered before.
    closed: Option<Closed>,
    /// True if the connection has yielded since it last had to pass the barrier.
    has_yielded: bool,
}

struct Closed(Pin<Box<dyn Future<Output = ()> + Send>>);

impl std::fmt::Debug for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Closed")
    }
}

impl<S> Clone for CoalescingStream<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> CoalescingStream<S> {
    pub(crate) fn new(stream: S, barrier: Option<Arc<dyn WriteBarrier>>) -> Self {
        let buffer = BytesMut::new();
        Self(Arc::new(Mutex::new(Inner {
            stream,
            buffer,
            unflushed: false,
            barrier,
            closed: None,
            has_yielded: false,
        })))
    }

    /// Polls the task that drives the connection, and flushes whenever it goes idle.
    pub(crate) async fn drive<T>(self, task: impl Future<Output = T>) -> T {
        let mut task = pin!(task);
        let result = std::future::poll_fn(|cx| {
            let polled = task.as_mut().poll(cx);
            let mut inner = self.lock();
            if polled.is_pending() && inner.should_yield() {
                cx.waker().wake_by_ref();
                return polled;
            }
            // The task sees an error of the stream when it next reads or writes.
            let _ = inner.flush(cx);
            polled
        })
        .await;
        let flushed = std::future::poll_fn(|cx| self.lock().flush(cx));
        let _ = tokio::time::timeout(FINAL_FLUSH, flushed).await;
        result
    }

    fn lock(&self) -> MutexGuard<'_, Inner<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: AsyncWrite + Unpin> Inner<S> {
    /// Returns true if other tasks should run before the barrier is passed, once for each time: connections that have
    /// requests at the same time then pass it together.
    fn should_yield(&mut self) -> bool {
        self.has_yielded = self.barrier.is_some() && !self.buffer.is_empty() && !self.has_yielded;
        self.has_yielded
    }

    /// Waits until the barrier lets pass what is buffered.
    fn pass_barrier(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(barrier) = &self.barrier else { return Poll::Ready(()) };
        loop {
            if self.closed.is_none() {
                self.closed = barrier.pass().map(Closed);
            }
            let Some(closed) = &mut self.closed else { return Poll::Ready(()) };
            ready!(closed.0.as_mut().poll(cx));
            // More may have been buffered meanwhile.
            self.closed = None;
        }
    }

    /// Writes the buffer to the stream.
    fn write_buffer(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.buffer.is_empty() {
            ready!(self.pass_barrier(cx));
        }
        while !self.buffer.is_empty() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.buffer))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.buffer.advance(written);
            self.unflushed = true;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes the buffer and flushes the stream.
    fn flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.write_buffer(cx))?;
        if self.unflushed {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.unflushed = false;
        }
        // The consumed part of a buffer counts as its capacity only once it is reclaimed.
        if self.buffer.try_reclaim(IDLE_BUFFER_BYTES + 1) {
            self.buffer = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }

    /// Buffers slices as far as there is room. Returns the number of bytes taken.
    fn fill_buffer(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if self.buffer.len() >= BUFFER_BYTES {
            if busy::is_turn_over() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            ready!(self.write_buffer(cx))?;
        }
        let mut taken = 0;
        for slice in slices {
            let room = BUFFER_BYTES - self.buffer.len();
            if room == 0 {
                break;
            }
            let part = slice.get(..room).unwrap_or(slice);
            if self.buffer.capacity() - self.buffer.len() < part.len() {
                // Two sizes, so that a connection with small responses stays small.
                let large = self.buffer.len() + part.len() > IDLE_BUFFER_BYTES;
                self.buffer.reserve(if large { room } else { IDLE_BUFFER_BYTES - self.buffer.len() });
            }
            self.buffer.extend_from_slice(part);
            taken += part.len();
        }
        Poll::Ready(Ok(taken))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for CoalescingStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.lock().stream).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for CoalescingStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.lock().fill_buffer(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.lock().fill_buffer(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Returns at once: [`CoalescingStream::drive`] flushes when the task goes idle.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.lock();
        ready!(inner.flush(cx))?;
        Pin::new(&mut inner.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn writes_leave_together_when_the_task_goes_idle() {
        let (server, mut client) = tokio::io::duplex(1 << 20);
        let coalescing = CoalescingStream::new(server, None);
        let mut stream = coalescing.clone();
        let task = tokio::spawn(coalescing.drive(async move {
            stream.write_all(b"one ").await.unwrap();
            stream.flush().await.unwrap();
            stream.write_all(b"two").await.unwrap();
            let mut reply = [0; 2];
            stream.read_exact(&mut reply).await.unwrap();
            stream.write_all(b" three").await.unwrap();
            reply
        }));
        let mut received = [0; 7];
        client.read_exact(&mut received).await.unwrap();
        assert_eq!(&received, b"one two");
        client.write_all(b"ok").await.unwrap();
        assert_eq!(&task.await.unwrap(), b"ok");
        let mut received = String::new();
        client.read_to_string(&mut received).await.unwrap();
        assert_eq!(received, " three");
    }

    #[tokio::test]
    async fn full_stream_exerts_back_pressure_on_a_long_write() {
        let (server, mut client) = tokio::io::duplex(1000);
        let sent: Vec<u8> = (0..BUFFER_BYTES * 3 + 7).map(|number| number as u8).collect();
        let coalescing = CoalescingStream::new(server, None);
        let mut stream = coalescing.clone();
        let long = sent.clone();
        let task = tokio::spawn(coalescing.drive(async move { stream.write_all(&long).await.unwrap() }));
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.unwrap();
        task.await.unwrap();
        assert!(received == sent, "{} bytes of {}", received.len(), sent.len());
    }

    #[derive(Debug, Default)]
    struct Promises {
        made: std::sync::atomic::AtomicUsize,
        kept: tokio::sync::watch::Sender<usize>,
    }

    impl WriteBarrier for Promises {
        fn pass(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
            let made = self.made.load(std::sync::atomic::Ordering::SeqCst);
            if *self.kept.borrow() >= made {
                return None;
            }
            let mut kept = self.kept.subscribe();
            Some(Box::pin(async move {
                let _ = kept.wait_for(|kept| *kept >= made).await;
            }))
        }
    }

    #[tokio::test]
    async fn bytes_leave_only_after_the_barrier() {
        let (server, mut client) = tokio::io::duplex(1 << 20);
        let promises = Arc::new(Promises::default());
        let coalescing = CoalescingStream::new(server, Some(promises.clone()));
        let mut stream = coalescing.clone();
        let promised = promises.clone();
        let task = tokio::spawn(coalescing.drive(async move {
            for _ in 0..2 {
                promised.made.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                stream.write_all(b"x").await.unwrap();
                tokio::task::yield_now().await;
            }
        }));
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        let mut received = [0; 2];
        let early = std::future::poll_fn(|cx| {
            let mut buffer = ReadBuf::new(&mut received);
            Poll::Ready(Pin::new(&mut client).poll_read(cx, &mut buffer).is_ready())
        });
        assert!(!early.await, "nothing was kept");
        promises.kept.send_replace(1);
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        promises.kept.send_replace(2);
        client.read_exact(&mut received).await.unwrap();
        task.await.unwrap();
    }

    /// A barrier that records how many lines it wrote at a time.
    #[derive(Debug, Default)]
    struct Log {
        queued: std::sync::atomic::AtomicUsize,
        writes: Mutex<Vec<usize>>,
    }

    impl WriteBarrier for Log {
        fn pass(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
            let lines = self.queued.swap(0, std::sync::atomic::Ordering::SeqCst);
            if lines > 0 {
                self.writes.lock().unwrap().push(lines);
            }
            None
        }
    }

    #[tokio::test]
    async fn connections_with_requests_at_the_same_time_pass_the_barrier_together() {
        let log = Arc::new(Log::default());
        let mut clients = Vec::new();
        for _ in 0..3 {
            let (server, client) = tokio::io::duplex(1 << 20);
            clients.push(client);
            let coalescing = CoalescingStream::new(server, Some(log.clone() as Arc<dyn WriteBarrier>));
            let (mut stream, log) = (coalescing.clone(), log.clone());
            tokio::spawn(coalescing.drive(async move {
                let mut request = [0];
                while stream.read_exact(&mut request).await.is_ok() {
                    log.queued.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    stream.write_all(&request).await.unwrap();
                }
            }));
        }
        for _ in 0..2 {
            for client in &mut clients {
                client.write_all(b"x").await.unwrap();
            }
            for client in &mut clients {
                client.read_exact(&mut [0]).await.unwrap();
            }
        }
        assert_eq!(*log.writes.lock().unwrap(), [3, 3]);
    }

    #[tokio::test]
    async fn idle_connection_keeps_no_large_buffer() {
        let (server, mut client) = tokio::io::duplex(BUFFER_BYTES * 2);
        let coalescing = CoalescingStream::new(server, None);
        for length in [BUFFER_BYTES, BUFFER_BYTES - 7, IDLE_BUFFER_BYTES + 1] {
            let (mut stream, sent) = (coalescing.clone(), vec![b'x'; length]);
            coalescing.clone().drive(async { stream.write_all(&sent).await.unwrap() }).await;
            client.read_exact(&mut vec![0; length]).await.unwrap();
            assert!(!coalescing.lock().buffer.try_reclaim(IDLE_BUFFER_BYTES + 1), "{length}");
        }
    }
}
