//! Intake filter: reads request bodies under budgets per connection and per server.
//!
//! Flow control comes after intake, so that a request whose body never arrives holds no permit. A body counts
//! against its connection's budget, so that one client cannot use up the server's, until the request is answered.

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use orlop_api::status::Status;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum bytes of a body.
const BODY_BYTES_MAX: usize = 3 << 20;
/// Budgets of bodies in memory, in KiB: of the server, and of one connection.
const SERVER_BUDGET_KIB: usize = 96 << 10;
const CONNECTION_BUDGET_KIB: usize = 16 << 10;
/// Time that a body waits for its budget before the client gets 429.
const BUDGET_TIMEOUT: Duration = Duration::from_secs(5);

/// The server's budget of bodies.
#[derive(Clone, Debug)]
pub(crate) struct Intake(Arc<Semaphore>);

impl Default for Intake {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(SERVER_BUDGET_KIB)))
    }
}

/// A connection's budget of bodies, shared by its requests.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionIntake(Arc<Semaphore>);

impl Default for ConnectionIntake {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(CONNECTION_BUDGET_KIB)))
    }
}

/// A complete body, and its share of the budgets until it is dropped.
#[derive(Debug)]
pub(crate) struct ReadBody {
    pub(crate) bytes: Bytes,
    _shares: Vec<Share>,
}

/// A share of one budget.
#[derive(Debug)]
struct Share {
    of: Arc<Semaphore>,
    held: Option<OwnedSemaphorePermit>,
}

impl Share {
    /// Grows to a number of bytes.
    async fn grow(&mut self, bytes: usize) -> Result<(), Status> {
        let held = self.held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = u32::try_from(bytes.div_ceil(1024).saturating_sub(held)).unwrap_or(u32::MAX);
        if more == 0 {
            return Ok(());
        }
        let more = tokio::time::timeout(BUDGET_TIMEOUT, self.of.clone().acquire_many_owned(more)).await;
        let Ok(Ok(more)) = more else { return Err(full()) };
        match &mut self.held {
            Some(held) => held.merge(more),
            None => self.held = Some(more),
        }
        Ok(())
    }
}

impl Intake {
    /// Reads a complete body.
    pub(crate) async fn read<B>(
        &self,
        body: B,
        connection: Option<&ConnectionIntake>,
    ) -> Result<ReadBody, Status>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if body.is_end_stream() {
            return Ok(ReadBody { bytes: Bytes::new(), _shares: Vec::new() });
        }
        let mut body = std::pin::pin!(Limited::new(body, BODY_BYTES_MAX));
        // The connection's first: a client over its own budget holds nothing of the server's.
        let budgets = connection.map(|own| &own.0).into_iter().chain([&self.0]);
        let mut shares: Vec<Share> = budgets.map(|of| Share { of: of.clone(), held: None }).collect();
        let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(refused)?.into_data() else { continue };
            let length = first.len() + rest.len() + data.len();
            for share in &mut shares {
                share.grow(length).await?;
            }
            // Most bodies are one frame, which is not copied.
            if first.is_empty() && rest.is_empty() {
                first = data;
                continue;
            }
            rest.extend_from_slice(&std::mem::take(&mut first));
            rest.extend_from_slice(&data);
        }
        let bytes = if rest.is_empty() { first } else { rest.freeze() };
        Ok(ReadBody { bytes, _shares: shares })
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

    /// Returns a body whose frames the test sends.
    fn streamed() -> (mpsc::Sender<Result<Bytes, Aborted>>, Body) {
        let (sender, pieces) = mpsc::channel(4);
        (sender, Body::Stream(pieces))
    }

    fn kib(count: usize) -> Bytes {
        vec![b' '; count << 10].into()
    }

    #[tokio::test(start_paused = true)]
    async fn one_connection_leaves_shares_for_others_and_is_asked_to_come_again() {
        let intake = Intake(Arc::new(Semaphore::new(100)));
        let greedy = ConnectionIntake(Arc::new(Semaphore::new(10)));
        let (sender, body) = streamed();
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
    async fn frames_are_counted_and_joined() {
        let intake = Intake(Arc::new(Semaphore::new(3)));
        let (sender, body) = streamed();
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
