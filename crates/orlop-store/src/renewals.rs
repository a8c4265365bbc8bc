//! Leases that were kept alive a moment ago.
//!
//! A holder that beats often, or many holders of one lease, would cost a commit with every beat. So a beat
//! that comes within [`RECENT`] of one that is in the database is answered without another: the database's
//! deadline is then earlier than what the holder was promised, by that much at the most, and every process
//! lets a lease live that much longer before it expires it. So the promise holds whatever crashes when.
//! What this cannot know is that another process has revoked the lease within that moment.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{Lease, LeaseId};

/// How long a renewal stands for those that follow, and how much longer than its time a lease lives.
pub(crate) const RECENT: Duration = Duration::from_millis(300);
/// Renewals remembered before those that are no longer recent are swept out.
const SWEEP: usize = 1024;

/// The leases that this process has renewed lately.
#[derive(Debug, Default)]
pub(crate) struct Renewals(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    leases: HashMap<LeaseId, Renewed>,
    /// How often a lease was forgotten: a renewal under way meanwhile may have been of that one.
    forgotten: u64,
}

/// When a renewal was begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    at: Instant,
    forgotten: u64,
}

#[derive(Clone, Copy, Debug)]
struct Renewed {
    ttl_seconds: i64,
    at: Instant,
}

impl Renewed {
    fn is_recent(&self) -> bool {
        self.at.elapsed() < RECENT
    }
}

impl Renewals {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lease, as if renewed now, if it was a moment ago.
    pub(crate) fn recent(&self, id: LeaseId) -> Option<Lease> {
        let renewed = self.known().leases.get(&id).copied().filter(Renewed::is_recent)?;
        let ttl_seconds = renewed.ttl_seconds;
        Some(Lease { id, ttl_seconds, remaining_ms: ttl_seconds.saturating_mul(1000) })
    }

    /// To be called before a renewal is put to the database.
    pub(crate) fn begin(&self) -> Begun {
        Begun { at: Instant::now(), forgotten: self.known().forgotten }
    }

    /// A lease has been renewed in the database.
    pub(crate) fn renewed(&self, lease: &Lease, begun: Begun) {
        let mut known = self.known();
        if known.forgotten != begun.forgotten {
            return;
        }
        if known.leases.len() >= SWEEP {
            known.leases.retain(|_, renewed| renewed.is_recent());
        }
        known.leases.insert(lease.id, Renewed { ttl_seconds: lease.ttl_seconds, at: begun.at });
    }

    /// A lease is gone, or may be.
    pub(crate) fn forget(&self, id: LeaseId) {
        let mut known = self.known();
        known.leases.remove(&id);
        known.forgotten += 1;
    }
}
