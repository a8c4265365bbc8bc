//! A priority level: a queue set behind a lock, and the handles of its requests.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use tokio::sync::{Notify, oneshot};

use crate::{
    clock::Clock,
    queue_set::{Arrival, Decision, QueueSet, Queuing, Slot},
    rejection::{RejectReason, Rejected},
    retry_after::RetryAfter,
};

/// A priority level. Its lock is held for a few hundred nanoseconds at a time.
#[derive(Debug)]
pub(crate) struct Level {
    pub(crate) name: Arc<str>,
    clock: Arc<dyn Clock>,
    began: Instant,
    set: Mutex<QueueSet>,
    rejected: Mutex<RetryAfter>,
    /// Told when a request waits for seats whose release has a time.
    release_needed: Arc<Notify>,
}

impl Level {
    pub(crate) fn new(
        name: &str,
        queuing: Queuing,
        seats_max: usize,
        clock: Arc<dyn Clock>,
        release_needed: Arc<Notify>,
    ) -> Self {
        let began = clock.now();
        Self {
            name: name.into(),
            set: Mutex::new(QueueSet::new(queuing, seats_max, began)),
            rejected: Mutex::default(),
            began,
            clock,
            release_needed,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, QueueSet> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Changes the limits.
    pub(crate) fn configure(&self, queuing: Queuing, seats_max: usize, denominator: usize) {
        let now = self.now();
        self.lock().configure(queuing, seats_max, denominator, now);
    }

    /// Decides about a request.
    pub(crate) fn start(
        self: &Arc<Self>,
        arrival: Arrival<'_>,
        watches: Option<usize>,
        describe: impl FnOnce(&mut String),
    ) -> Started {
        let now = self.now();
        let mut set = self.lock();
        if let Some(watches) = watches {
            set.metrics.flow(arrival.flow).watched(watches);
        }
        let decision = set.arrive(now, arrival, describe);
        let is_release_needed = matches!(decision, Decision::Wait(..)) && set.next_release().is_some();
        drop(set);
        if is_release_needed {
            self.release_needed.notify_one();
        }
        match decision {
            Decision::Execute(slot) => Started::Executing(Seats { level: self.clone(), slot }),
            Decision::Wait(slot, dispatched) => {
                Started::Waiting(Ticket { level: self.clone(), slot, dispatched, is_over: false })
            }
            Decision::Reject(reason) => Started::Rejected(self.reject(reason, now)),
        }
    }

    fn reject(&self, reason: RejectReason, now: Instant) -> Rejected {
        let second = now.saturating_duration_since(self.began).as_secs();
        let mut rejected = self.rejected.lock().unwrap_or_else(PoisonError::into_inner);
        Rejected { reason, retry_after_seconds: rejected.reject(second) }
    }

    /// Frees seats whose time has come. Returns the time of the next that requests wait for.
    pub(crate) fn release_due(&self) -> Option<Instant> {
        let now = self.now();
        let mut set = self.lock();
        set.advance(now);
        set.next_release()
    }
}

/// Writes the details of a request for people who look at what is executing: user, verb, path, namespace, name, group
/// and version, resource, subresource.
#[derive(Clone, Copy, Debug, Default)]
pub struct Description<'a> {
    /// Name of the user.
    pub user: &'a str,
    /// The verb.
    pub verb: &'a str,
    /// Path of the URL.
    pub path: &'a str,
    /// Namespace; may be empty.
    pub namespace: &'a str,
    /// Name of the object; may be empty.
    pub name: &'a str,
    /// API group; empty for core.
    pub group: &'a str,
    /// API version.
    pub version: &'a str,
    /// Resource; empty for other paths.
    pub resource: &'a str,
    /// Subresource; may be empty.
    pub subresource: &'a str,
}

/// Separates the fields of a description.
pub(crate) const FIELD_END: char = '\u{1f}';
/// Bytes of a field that are kept.
const FIELD_BYTES_MAX: usize = 256;

impl Description<'_> {
    pub(crate) fn write(&self, text: &mut String) {
        let fields = [
            self.user,
            self.verb,
            self.path,
            self.namespace,
            self.name,
            self.group,
            self.version,
            self.resource,
            self.subresource,
        ];
        for field in fields {
            text.push_str(&field[..field.floor_char_boundary(FIELD_BYTES_MAX)]);
            text.push(FIELD_END);
        }
    }
}

/// Decision about a request.
#[derive(Debug)]
pub enum Started {
    /// It executes as long as it holds its seats.
    Executing(Seats),
    /// It waits.
    Waiting(Ticket),
    /// It is rejected.
    Rejected(Rejected),
}

/// The seats of a request that executes. Dropping them ends it.
#[derive(Debug)]
pub struct Seats {
    level: Arc<Level>,
    slot: Slot,
}

impl Drop for Seats {
    fn drop(&mut self) {
        let now = self.level.now();
        let mut set = self.level.lock();
        set.finish(self.slot, now);
        let is_release_needed = set.next_release().is_some();
        drop(set);
        if is_release_needed {
            self.level.release_needed.notify_one();
        }
    }
}

/// A request that waits. Dropping it takes it out of its queue.
#[derive(Debug)]
pub struct Ticket {
    level: Arc<Level>,
    slot: Slot,
    dispatched: oneshot::Receiver<()>,
    /// True once the request is rejected, or its seats are another's to free.
    is_over: bool,
}

impl Ticket {
    /// Waits until the request is dispatched, or `limit` completes.
    pub async fn dispatched(mut self, limit: impl Future<Output = ()>) -> Result<Seats, Rejected> {
        let is_dispatched = tokio::select! {
            biased;
            dispatched = &mut self.dispatched => dispatched.is_ok(),
            () = limit => false,
        };
        if !is_dispatched && self.cancel(true) {
            self.is_over = true;
            return Err(self.level.reject(RejectReason::TimeOut, self.level.now()));
        }
        Ok(self.take_seats())
    }

    /// Returns the seats of the request if it is dispatched; itself otherwise.
    pub fn try_dispatched(mut self) -> Result<Seats, Self> {
        if self.dispatched.try_recv().is_ok() { Ok(self.take_seats()) } else { Err(self) }
    }

    fn take_seats(&mut self) -> Seats {
        self.is_over = true;
        Seats { level: self.level.clone(), slot: self.slot }
    }

    /// Takes the request out of its queue. Returns false if it executes.
    fn cancel(&self, timed_out: bool) -> bool {
        let now = self.level.now();
        self.level.lock().cancel(self.slot, now, timed_out)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.is_over && !self.cancel(false) {
            // It was dispatched meanwhile.
            drop(self.take_seats());
        }
    }
}
