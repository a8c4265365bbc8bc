//! The body of a watch, driven by the connection that sends it.
//!
//! There is no task and no queue between the store's watcher and the connection: polling the body runs the
//! watch until it has no more events or a chunk is full. An event costs one wake-up of one task, and a
//! watcher that lags sends large chunks of coalesced events.
//!
//! A large event is shared by all watchers and never copied into a chunk. Chunks of small ones are counted by the
//! budget of streamed bodies; while that has no room, events are not coalesced.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};

use super::stream_budget::StreamBudget;

/// Bytes of events at which a chunk is sent.
const CHUNK_BYTES: usize = 32 << 10;
/// Bytes from which a chunk is counted by the budget.
const COUNTED_BYTES: usize = 1 << 10;

/// Receives the encoded events of a watch.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventSink(Arc<Mutex<Pending>>);

/// Events since the last chunk.
#[derive(Debug, Default)]
struct Pending {
    /// The first event: alone, it is sent without being copied.
    first: Bytes,
    /// All events, if there are several.
    coalesced: BytesMut,
    /// A large event after them: a chunk of its own.
    large: Bytes,
    events: u64,
    /// Sends each event as a chunk of its own.
    separate: bool,
    /// True once the objects that were there at the start are sent.
    is_initialized: bool,
    budget: StreamBudget,
}

impl Pending {
    fn push(&mut self, event: Bytes) {
        self.events += 1;
        if self.events == 1 {
            self.first = event;
            return;
        }
        if event.len() >= CHUNK_BYTES {
            self.events -= 1;
            self.large = event;
            return;
        }
        if self.coalesced.is_empty() {
            self.coalesced.reserve(CHUNK_BYTES + event.len());
            self.coalesced.extend_from_slice(&self.first);
        }
        self.coalesced.extend_from_slice(&event);
    }

    fn is_full(&self) -> bool {
        let bytes = self.first.len().max(self.coalesced.len());
        self.events > 0
            && (self.separate || !self.large.is_empty() || bytes >= CHUNK_BYTES || !self.budget.has_room())
    }

    fn take(&mut self) -> Option<(Bytes, u64)> {
        let events = std::mem::take(&mut self.events);
        let (first, coalesced) = (std::mem::take(&mut self.first), std::mem::take(&mut self.coalesced));
        if !self.large.is_empty() {
            (self.first, self.events) = (std::mem::take(&mut self.large), 1);
        }
        match events {
            0 => None,
            1 => Some((first, 1)),
            _ if coalesced.len() < COUNTED_BYTES => Some((coalesced.freeze(), events)),
            _ => Some((self.budget.hold_chunk(coalesced.freeze()), events)),
        }
    }
}

impl EventSink {
    /// Returns a sink whose chunks are counted by a budget.
    pub(crate) fn new(budget: StreamBudget) -> Self {
        Self(Arc::new(Mutex::new(Pending { budget, ..Pending::default() })))
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event to the current chunk. Completes when there is room for the next.
    pub(crate) async fn send(&self, event: Bytes) {
        self.pending().push(event);
        // No waker: the connection that takes the chunk polls the watch again.
        std::future::poll_fn(|_| if self.pending().is_full() { Poll::Pending } else { Poll::Ready(()) })
            .await;
    }

    /// Notes that the objects that were there at the start are sent, or that there is no need to.
    pub(crate) fn initialized(&self) {
        self.pending().is_initialized = true;
    }

    /// Awaits a future, except while a chunk is full: then the watch may have more events to send first.
    pub(crate) async fn unless_full(&self, awaited: impl Future<Output = ()>) {
        let mut awaited = std::pin::pin!(awaited);
        std::future::poll_fn(|cx| {
            if self.pending().is_full() { Poll::Pending } else { awaited.as_mut().poll(cx) }
        })
        .await;
    }
}

/// The body of a watch.
pub struct WatchBody {
    sink: EventSink,
    watch: Pin<Box<dyn Future<Output = ()> + Send>>,
    done: bool,
}

impl fmt::Debug for WatchBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchBody").field("done", &self.done).finish_non_exhaustive()
    }
}

impl WatchBody {
    /// Returns a body of the events that `watch` sends to `sink` until it completes.
    pub(crate) fn new(sink: EventSink, watch: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { sink, watch: Box::pin(watch), done: false }
    }

    /// Returns true once the objects that were there at the start are sent.
    pub(crate) fn is_initialized(&self) -> bool {
        self.sink.pending().is_initialized
    }

    /// Makes each event a chunk of its own from now on.
    pub(crate) fn separate(&mut self) {
        self.sink.pending().separate = true;
    }

    /// Polls for the next chunk and the number of events in it.
    pub(crate) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<(Bytes, u64)>> {
        if !self.done {
            self.done = self.watch.as_mut().poll(cx).is_ready();
        }
        match self.sink.pending().take() {
            None if !self.done => Poll::Pending,
            chunk => Poll::Ready(chunk),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    fn events(lengths: &'static [usize]) -> WatchBody {
        let sink = EventSink::default();
        let sender = sink.clone();
        WatchBody::new(sink, async move {
            for length in lengths {
                sender.send(vec![b'x'; *length].into()).await;
            }
        })
    }

    async fn chunks(mut events: WatchBody) -> Vec<(usize, u64)> {
        let mut chunks = Vec::new();
        while let Some((chunk, count)) = poll_fn(|cx| events.poll_chunk(cx)).await {
            chunks.push((chunk.len(), count));
        }
        chunks
    }

    #[tokio::test]
    async fn pending_events_are_coalesced_up_to_the_chunk_size() {
        assert_eq!(chunks(events(&[])).await, []);
        assert_eq!(chunks(events(&[5])).await, [(5, 1)]);
        assert_eq!(chunks(events(&[5, 6, 7])).await, [(18, 3)]);
        assert_eq!(
            chunks(events(&[CHUNK_BYTES, 1, CHUNK_BYTES, 2])).await,
            [(CHUNK_BYTES, 1), (1, 1), (CHUNK_BYTES, 1), (2, 1)]
        );
    }

    #[tokio::test]
    async fn large_event_is_never_copied() {
        let sink = EventSink::default();
        let (sender, large) = (sink.clone(), Bytes::from(vec![b'x'; CHUNK_BYTES]));
        let sent = large.clone();
        let mut body = WatchBody::new(sink, async move {
            for event in [Bytes::from_static(b"a"), Bytes::from_static(b"b"), sent, Bytes::from_static(b"c")]
            {
                sender.send(event).await;
            }
        });
        let mut chunks = Vec::new();
        while let Some((chunk, _)) = poll_fn(|cx| body.poll_chunk(cx)).await {
            chunks.push(chunk);
        }
        assert_eq!(chunks.len(), 3);
        assert_eq!(chunks[1].as_ptr(), large.as_ptr());
    }

    #[tokio::test]
    async fn events_are_not_coalesced_while_the_budget_has_no_room() {
        let budget = StreamBudget::default();
        let chunks_of = async |budget: StreamBudget| {
            let sink = EventSink::new(budget);
            let sender = sink.clone();
            let events = WatchBody::new(sink, async move {
                for _ in 0..6 {
                    sender.send(vec![b'x'; COUNTED_BYTES / 2].into()).await;
                }
            });
            chunks(events).await.len()
        };
        assert_eq!(chunks_of(budget.clone()).await, 1);
        let held = budget.hold(usize::MAX / 2);
        assert_eq!(chunks_of(budget.clone()).await, 6);
        drop(held);
        assert_eq!(chunks_of(budget).await, 1);
    }

    #[tokio::test]
    async fn separate_events_are_not_coalesced() {
        let mut events = events(&[5, 6]);
        events.separate();
        assert_eq!(chunks(events).await, [(5, 1), (6, 1)]);
    }
}
