//! Policy and backends together: the audit of a server.

use std::{cell::Cell, pin::Pin, sync::Arc, time::Duration};

use orlop_api::{time::Time, user::UserInfo};
use orlop_auth::request::Attributes;

use crate::{
    backend::{Backend, Delivery, Ticket},
    context::Context,
    event::{Event, Objects},
    metrics::{Metrics, Plugin},
    policy::{Policy, Verdict},
    stage::{Level, Stage},
};

/// Longest time that a request waits for a blocking backend.
pub const WAIT_MAX: Duration = Duration::from_secs(10);

/// Capacity of a thread's buffer that is kept.
const LINE_BYTES_KEPT: usize = 16 << 10;

thread_local! {
    /// Buffer in which an event is encoded; empty between events.
    static LINE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The audit of a server.
#[derive(Debug)]
pub struct Auditor {
    policy: Policy,
    backends: Vec<Arc<dyn Backend>>,
    metrics: Metrics,
}

impl Auditor {
    /// Returns an auditor that sends the events of a policy to backends.
    pub fn new(policy: Policy, backends: Vec<Arc<dyn Backend>>, metrics: Metrics) -> Self {
        Self { policy, backends, metrics }
    }

    /// Returns the counters.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Decides about a request. `user` is `None` if it is not authenticated.
    pub fn evaluate(&self, attributes: &Attributes, user: Option<&UserInfo>) -> Verdict {
        let verdict = self.policy.evaluate(attributes, user);
        self.metrics.level(verdict.level);
        verdict
    }

    /// Records a stage. Waits for blocking backends, up to [`WAIT_MAX`]. Returns false if a strict backend failed.
    pub async fn record(&self, event: &Event, stage: Stage, now: Time, delivery: Delivery) -> bool {
        let Offered { mut stored, pending } = self.offer(event, stage, now, delivery);
        for Pending { written, is_strict } in pending {
            let written = tokio::time::timeout(WAIT_MAX, written).await.unwrap_or(false);
            stored &= written || !is_strict;
        }
        stored
    }

    /// Records a stage without waiting for any backend.
    pub fn record_detached(&self, event: &Event, stage: Stage, now: Time) {
        drop(self.offer(event, stage, now, Delivery::Detached));
    }

    /// Writes the events that were recorded for delivery before a response. Returns a future if that has to be waited
    /// for, up to [`WAIT_MAX`].
    pub fn flush(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        let mut waits = self.backends.iter().filter_map(|backend| backend.flush());
        let first = waits.next()?;
        let others: Vec<_> = waits.collect();
        let all = async move {
            first.await;
            for other in others {
                other.await;
            }
        };
        Some(Box::pin(async move {
            let _ = tokio::time::timeout(WAIT_MAX, all).await;
        }))
    }

    fn offer(&self, event: &Event, stage: Stage, now: Time, delivery: Delivery) -> Offered {
        self.metrics.event();
        let mut offered = Offered { stored: true, pending: Vec::new() };
        let mut line = LINE.take();
        for backend in &self.backends {
            if backend.is_legacy() {
                offered.offer(&**backend, &event.legacy(stage), delivery);
                continue;
            }
            if line.is_empty() {
                event.encode(stage, now, Objects::Include, &mut line);
            }
            let bytes_max = backend.event_bytes_max().unwrap_or(usize::MAX);
            let mut truncated = Vec::new();
            if line.len() > bytes_max && event.level >= Level::Request {
                event.encode(stage, now, Objects::Truncate, &mut truncated);
            }
            let line = if truncated.is_empty() { &line } else { &truncated };
            if line.len() > bytes_max {
                tracing::warn!(bytes = line.len(), "an audit event is too large even after truncating");
                self.metrics.lost(Plugin::Truncate, 1);
                continue;
            }
            offered.offer(&**backend, line, delivery);
        }
        if line.capacity() <= LINE_BYTES_KEPT {
            line.clear();
            LINE.set(line);
        }
        offered
    }

    /// Counts a request that was refused because it could not be audited.
    pub fn rejected(&self) {
        self.metrics.rejected();
    }

    /// Moves what handlers added to an event.
    pub fn complete(&self, event: &mut Event, context: &Context) {
        context.complete(event);
    }

    /// Writes what is queued, each backend within its own bound.
    pub async fn close(&self) {
        for backend in &self.backends {
            backend.close().await;
        }
    }
}

/// An event that was offered to all backends.
struct Offered {
    /// False if a strict backend did not take it.
    stored: bool,
    pending: Vec<Pending>,
}

/// An event that a backend has not written yet.
struct Pending {
    written: Pin<Box<dyn Future<Output = bool> + Send>>,
    is_strict: bool,
}

impl Offered {
    fn offer(&mut self, backend: &dyn Backend, line: &[u8], delivery: Delivery) {
        let is_strict = backend.is_strict();
        // A strict backend may refuse the request.
        let delivery = if is_strict { Delivery::Awaited } else { delivery };
        match backend.offer(line, delivery) {
            Ticket::Done(taken) => self.stored &= taken || !is_strict,
            Ticket::Pending(written) => self.pending.push(Pending { written, is_strict }),
        }
    }
}
