//! A connection's bytes: deadlines for slow and idle clients, and a bound on what all of them make us hold.

use std::{sync::Arc, time::Duration};

use bytes::BytesMut;
use orlop_net::Stream;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::Instant,
};

/// Bytes to read at once.
const READ_BYTES: usize = 32 << 10;
/// Slowest transfer of a message, in bytes per second, beyond the time that every message has.
const RATE_MIN: u64 = 64 << 10;
/// Bytes sent within one deadline.
const SEND_BYTES: usize = 256 << 10;
/// Largest message that is read without a permit of the intake.
const SMALL_MESSAGE: usize = 64 << 10;
/// Largest message of a client that has not authenticated itself.
pub(crate) const UNAUTHENTICATED_LEN_MAX: usize = 64 << 10;

/// Limits that connections share.
#[derive(Debug)]
pub(crate) struct Limits {
    /// Time after which a connection without a message is closed.
    pub(crate) idle: Duration,
    /// Time that a message has to arrive or to be taken, however short it is.
    pub(crate) transfer: Duration,
    /// Largest message, in bytes.
    pub(crate) message_len_max: usize,
    /// KiB of large messages that may be in memory at a time.
    intake: Arc<Semaphore>,
}

impl Limits {
    pub(crate) fn new(idle: Duration, transfer: Duration, message_len_max: usize, intake_len: usize) -> Self {
        // The largest message always fits, or it could never be read.
        let intake = kibibytes(intake_len.max(message_len_max)) as usize;
        Self { idle, transfer, message_len_max, intake: Arc::new(Semaphore::new(intake)) }
    }

    /// Returns the time in which so many bytes must have been transferred.
    fn transfer_time(&self, length: usize) -> Duration {
        self.transfer + Duration::from_secs(length as u64 / RATE_MIN)
    }
}

/// Returns a length as permits of a semaphore, which have 32 bits.
pub(crate) fn kibibytes(length: usize) -> u32 {
    u32::try_from(length.div_ceil(1024)).unwrap_or(u32::MAX)
}

/// A connection.
pub(crate) struct Connection {
    stream: Stream,
    limits: Arc<Limits>,
    stop: watch::Receiver<bool>,
    /// Bytes that have been read and not taken.
    pub(crate) buffer: BytesMut,
    /// Beginning of the message that is being read.
    message_began: Option<Instant>,
    /// Permit of the intake of the message that is being read or answered.
    permit: Option<OwnedSemaphorePermit>,
}

impl Connection {
    pub(crate) fn new(stream: Stream, limits: Arc<Limits>, stop: watch::Receiver<bool>) -> Self {
        let buffer = BytesMut::with_capacity(READ_BYTES);
        Self { stream, limits, stop, buffer, message_began: None, permit: None }
    }

    /// Reads more of a message, whose length is given if it is known. Returns false if the connection has
    /// ended, is too slow, or the server stops.
    pub(crate) async fn read_more(&mut self, message_len: Option<usize>) -> bool {
        if self.message_began.is_none() {
            // What came before has been answered.
            self.permit = None;
        }
        let deadline = if self.buffer.is_empty() {
            self.message_began = None;
            Instant::now() + self.limits.idle
        } else {
            let began = *self.message_began.get_or_insert_with(Instant::now);
            // Only what has arrived earns more time.
            began + self.limits.transfer_time(self.buffer.len())
        };
        if let Some(length) = message_len.filter(|length| *length > SMALL_MESSAGE)
            && self.permit.is_none()
        {
            let permit = Arc::clone(&self.limits.intake).acquire_many_owned(kibibytes(length));
            match tokio::time::timeout_at(deadline, permit).await {
                Ok(Ok(permit)) => self.permit = Some(permit),
                _ => return false,
            }
        }
        self.buffer.reserve(READ_BYTES);
        tokio::select! {
            read = tokio::time::timeout_at(deadline, self.stream.read_buf(&mut self.buffer)) => {
                matches!(read, Ok(Ok(count)) if count > 0)
            }
            // Between messages nothing is lost by ending.
            _ = self.stop.wait_for(|stop| *stop) => false,
        }
    }

    /// Takes a whole message from the buffer.
    pub(crate) fn take(&mut self, length: usize) -> BytesMut {
        self.message_began = None;
        self.buffer.split_to(length)
    }

    /// Sends bytes. Returns false if the client is gone or does not take them.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> bool {
        for part in bytes.chunks(SEND_BYTES) {
            let sent =
                tokio::time::timeout(self.limits.transfer_time(part.len()), self.stream.write_all(part));
            if !matches!(sent.await, Ok(Ok(()))) {
                return false;
            }
        }
        matches!(tokio::time::timeout(self.limits.transfer, self.stream.flush()).await, Ok(Ok(())))
    }

    /// Returns true once the server stops.
    pub(crate) fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Ends the connection in order.
    pub(crate) async fn close(mut self) {
        // The client may be gone already.
        let _ = tokio::time::timeout(self.limits.transfer, self.stream.shutdown()).await;
    }
}
