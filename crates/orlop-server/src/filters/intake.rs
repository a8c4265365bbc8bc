//! What requests bring with them is bounded in sum, while it comes and until it is answered.
//!
//! A request takes its place in flow control only once its body is there: one whose body never comes holds no place
//! that others wait for. What has come of a body counts against its connection, so that one client cannot use up
//! what is there for all, and against the server.

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use orlop_api::status::Status;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of a request's body.
const BODY_BYTES_MAX: usize = 3 << 20;
/// KiB of bodies that the server holds, and that one connection does.
const SERVER_KIB: usize = 96 << 10;
const CONNECTION_KIB: usize = 16 << 10;
/// How long a body waits for room before its client is asked to come again.
const PATIENCE: Duration = Duration::from_secs(5);

/// The room that there is.
#[derive(Clone, Debug)]
pub(crate) struct Intake(Arc<Semaphore>);

impl Default for Intake {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(SERVER_KIB)))
    }
}

/// One connection's part of it, which its requests carry with them.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionIntake(Arc<Semaphore>);

impl Default for ConnectionIntake {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(CONNECTION_KIB)))
    }
}

/// A whole body, and the room that it takes until it is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) bytes: Bytes,
    _room: Vec<Room>,
}

/// Room in one of the bounds.
#[derive(Debug)]
struct Room {
    of: Arc<Semaphore>,
    held: Option<OwnedSemaphorePermit>,
}

impl Room {
    /// Grows to so many bytes.
    async fn grow(&mut self, bytes: usize) -> Result<(), Status> {
        let held = self.held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = u32::try_from(bytes.div_ceil(1024).saturating_sub(held)).unwrap_or(u32::MAX);
        if more == 0 {
            return Ok(());
        }
        let more = tokio::time::timeout(PATIENCE, self.of.clone().acquire_many_owned(more)).await;
        let Ok(Ok(more)) = more else { return Err(full()) };
        match &mut self.held {
            Some(held) => held.merge(more),
            None => self.held = Some(more),
        }
        Ok(())
    }
}

impl Intake {
    /// Reads a body whole.
    pub(crate) async fn read<B>(
        &self,
        body: B,
        connection: Option<&ConnectionIntake>,
    ) -> Result<Taken, Status>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if body.is_end_stream() {
            return Ok(Taken { bytes: Bytes::new(), _room: Vec::new() });
        }
        let mut body = std::pin::pin!(Limited::new(body, BODY_BYTES_MAX));
        // The connection's first: who has used up his own holds nothing of what is there for all.
        let bounds = connection.map(|own| &own.0).into_iter().chain([&self.0]);
        let mut room: Vec<Room> = bounds.map(|of| Room { of: of.clone(), held: None }).collect();
        let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(refused)?.into_data() else { continue };
            let length = first.len() + rest.len() + data.len();
            for room in &mut room {
                room.grow(length).await?;
            }
            // Most bodies are one piece, which is not copied.
            if first.is_empty() && rest.is_empty() {
                first = data;
                continue;
            }
            rest.extend_from_slice(&std::mem::take(&mut first));
            rest.extend_from_slice(&data);
        }
        let bytes = if rest.is_empty() { first } else { rest.freeze() };
        Ok(Taken { bytes, _room: room })
    }
}

fn full() -> Status {
    Status::too_many_requests("Too many requests, please try again later.", 1)
}

fn refused(error: Box<dyn std::error::Error + Send + Sync>) -> Status {
    if error.is::<LengthLimitError>() {
        return Status::request_entity_too_large(&format!("limit is {BODY_BYTES_MAX}"));
    }
    Status::bad_request(format!("the body could not be read: {error}"))
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;
    use tokio::sync::mpsc;

    use super::*;
    use crate::http::body::{Aborted, Body};

    /// A body that comes as it is told to.
    fn coming() -> (mpsc::Sender<Result<Bytes, Aborted>>, Body) {
        let (sender, pieces) = mpsc::channel(4);
        (sender, Body::Stream(pieces))
    }

    fn kib(count: usize) -> Bytes {
        vec![b' '; count << 10].into()
    }

    #[tokio::test(start_paused = true)]
    async fn one_connection_leaves_room_for_others_and_is_asked_to_come_again() {
        let intake = Intake(Arc::new(Semaphore::new(100)));
        let greedy = ConnectionIntake(Arc::new(Semaphore::new(10)));
        let (sender, body) = coming();
        sender.send(Ok(kib(10))).await.unwrap();
        let (waiting, connection) = (intake.clone(), greedy.clone());
        let unfinished = tokio::spawn(async move { waiting.read(body, Some(&connection)).await });
        while greedy.0.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let refused = intake.read(Full::new(kib(1)), Some(&greedy)).await.unwrap_err();
        assert_eq!((refused.code, refused.retry_after_seconds()), (429, 1));
        let other = intake.read(Full::new(kib(50)), Some(&ConnectionIntake::default())).await.unwrap();
        assert_eq!((other.bytes.len(), intake.0.available_permits()), (50 << 10, 40));

        drop(sender);
        let whole = unfinished.await.unwrap().unwrap();
        assert_eq!(whole.bytes, kib(10));
        drop((whole, other));
        assert_eq!((greedy.0.available_permits(), intake.0.available_permits()), (10, 100));
    }

    #[tokio::test(start_paused = true)]
    async fn pieces_are_counted_together_and_joined() {
        let intake = Intake(Arc::new(Semaphore::new(3)));
        let (sender, body) = coming();
        let sending = async move {
            for _ in 0..3000 {
                sender.send(Ok(Bytes::from_static(b"x"))).await.unwrap();
            }
        };
        let (_, taken) = tokio::join!(sending, intake.read(body, None));
        assert_eq!(taken.unwrap().bytes, "x".repeat(3000));
        assert_eq!(intake.read(Full::new(kib(4)), None).await.unwrap_err().code, 429);
    }
}
