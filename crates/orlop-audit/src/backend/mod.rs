//! Backends: the places that events are written to.

mod log;
mod rotation;
mod throttle;
mod webhook;

use std::{fmt, pin::Pin, time::Duration};

pub use log::{Format, LogBackend, LogOptions};
pub use rotation::RotationOptions;
pub use webhook::{WebhookBackend, WebhookOptions};

/// Relation between a request and the writing of its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Events are queued. One that does not fit in the queue is dropped and counted.
    Batch,
    /// A request waits until its event is written. Failures are ignored.
    Blocking,
    /// As `Blocking`, and a request whose first event cannot be written fails.
    BlockingStrict,
}

/// A rate of batches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throttle {
    /// Batches a second, on average.
    pub qps: f64,
    /// Batches at once after a pause.
    pub burst: u32,
}

/// Batches of a backend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchOptions {
    /// The mode. The others matter in batch mode only.
    pub mode: Mode,
    /// Events that may be queued.
    pub buffer_events_max: usize,
    /// Events of a batch.
    pub batch_events_max: usize,
    /// Longest time that an event waits for others.
    pub batch_wait_max: Duration,
    /// Limit on the rate of batches.
    pub throttle: Option<Throttle>,
}

/// Limits on the size of events and batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TruncateOptions {
    /// Bytes of an event. A larger one loses its objects.
    pub event_bytes_max: usize,
    /// Bytes of a batch. A larger one is split.
    pub batch_bytes_max: usize,
}

/// Relation between one event and its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// A backend that blocks makes the request wait.
    Awaited,
    /// The request goes on, and its connection waits for [`Backend::flush`] before it sends the response.
    BeforeResponse,
    /// Nobody waits: the event is written soon.
    Detached,
}

/// Writing of one event.
pub enum Ticket {
    /// Nothing to wait for; true if the event was taken.
    Done(bool),
    /// Resolves once the event is written, to true, or failed.
    Pending(Pin<Box<dyn Future<Output = bool> + Send>>),
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(taken) => f.debug_tuple("Done").field(taken).finish(),
            Self::Pending(_) => f.write_str("Pending"),
        }
    }
}

/// Writes events.
pub trait Backend: fmt::Debug + Send + Sync {
    /// Takes an encoded event. Waits for nothing but a fast local disk.
    fn offer(&self, event: &[u8], delivery: Delivery) -> Ticket;

    /// Writes all events that were taken for delivery before the response. Returns a future if that has to be waited for.
    fn flush(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>>;

    /// Returns true if a request fails whose first event cannot be written.
    fn is_strict(&self) -> bool;

    /// Returns true if events are lines of text instead of JSON.
    fn is_legacy(&self) -> bool {
        false
    }

    /// Returns the maximum bytes of an event.
    fn event_bytes_max(&self) -> Option<usize>;

    /// Writes what is queued, within a bound of time, and takes no more.
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}
