//! The body of a watch: events, made by whoever sends the body on, and joined where several wait.
//!
//! There is no task and no queue between the store's watcher and the connection: the connection asks for
//! the next piece, and that runs the watch until it has nothing more to tell or enough for a piece. So an
//! event costs a watcher one turn of one task, and a watcher that is behind sends large pieces.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};

/// Bytes of a piece that is worth sending before more is made.
const PIECE_BYTES: usize = 32 << 10;

/// Where a watch puts its events.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outlet(Arc<Mutex<Waiting>>);

/// Events that have been made since the last piece was taken.
#[derive(Debug, Default)]
struct Waiting {
    /// The only one so far: it is sent as it is, without being copied.
    first: Bytes,
    /// All of them, if there are several.
    joined: BytesMut,
    events: u64,
    /// Whether each event is to be a piece by itself.
    separate: bool,
}

impl Waiting {
    fn push(&mut self, event: Bytes) {
        self.events += 1;
        if self.events == 1 {
            self.first = event;
            return;
        }
        if self.joined.is_empty() {
            self.joined.reserve(PIECE_BYTES + event.len());
            self.joined.extend_from_slice(&self.first);
        }
        self.joined.extend_from_slice(&event);
    }

    fn is_full(&self) -> bool {
        self.events > 0 && (self.separate || self.first.len().max(self.joined.len()) >= PIECE_BYTES)
    }

    fn take(&mut self) -> Option<(Bytes, u64)> {
        let events = std::mem::take(&mut self.events);
        let (first, joined) = (std::mem::take(&mut self.first), std::mem::take(&mut self.joined));
        match events {
            0 => None,
            1 => Some((first, 1)),
            _ => Some((joined.freeze(), events)),
        }
    }
}

impl Outlet {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event to the piece that is being made. Returns when there is room for the next.
    pub(crate) async fn send(&self, event: Bytes) {
        self.waiting().push(event);
        // Nobody has to be woken: only the one who takes the piece goes on with the watch.
        std::future::poll_fn(|_| if self.waiting().is_full() { Poll::Pending } else { Poll::Ready(()) })
            .await;
    }
}

impl Outlet {
    /// Waits for something, but not while a piece is full: then there may be more to tell.
    pub(crate) async fn unless_full(&self, awaited: impl Future<Output = ()>) {
        let mut awaited = std::pin::pin!(awaited);
        std::future::poll_fn(|cx| {
            if self.waiting().is_full() { Poll::Pending } else { awaited.as_mut().poll(cx) }
        })
        .await;
    }
}

/// A watch that is being sent.
pub struct Events {
    outlet: Outlet,
    watch: Pin<Box<dyn Future<Output = ()> + Send>>,
    over: bool,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("over", &self.over).finish_non_exhaustive()
    }
}

impl Events {
    /// The events that `watch` puts into `outlet` until it ends.
    pub(crate) fn new(outlet: Outlet, watch: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { outlet, watch: Box::pin(watch), over: false }
    }

    /// Makes each event a piece by itself from now on.
    pub(crate) fn separate(&mut self) {
        self.outlet.waiting().separate = true;
    }

    /// The next piece, and how many events it holds.
    pub(crate) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<(Bytes, u64)>> {
        if !self.over {
            self.over = self.watch.as_mut().poll(cx).is_ready();
        }
        match self.outlet.waiting().take() {
            None if !self.over => Poll::Pending,
            piece => Poll::Ready(piece),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    fn events(lengths: &'static [usize]) -> Events {
        let outlet = Outlet::default();
        let sender = outlet.clone();
        Events::new(outlet, async move {
            for length in lengths {
                sender.send(vec![b'x'; *length].into()).await;
            }
        })
    }

    async fn pieces(mut events: Events) -> Vec<(usize, u64)> {
        let mut pieces = Vec::new();
        while let Some((piece, count)) = poll_fn(|cx| events.poll_piece(cx)).await {
            pieces.push((piece.len(), count));
        }
        pieces
    }

    #[tokio::test]
    async fn events_that_wait_are_joined_up_to_a_piece() {
        assert_eq!(pieces(events(&[])).await, []);
        assert_eq!(pieces(events(&[5])).await, [(5, 1)]);
        assert_eq!(pieces(events(&[5, 6, 7])).await, [(18, 3)]);
        assert_eq!(
            pieces(events(&[PIECE_BYTES, 1, PIECE_BYTES, 2])).await,
            [(PIECE_BYTES, 1), (PIECE_BYTES + 1, 2), (2, 1)]
        );
    }

    #[tokio::test]
    async fn events_stay_by_themselves_where_that_is_asked_for() {
        let mut events = events(&[5, 6]);
        events.separate();
        assert_eq!(pieces(events).await, [(5, 1), (6, 1)]);
    }
}
