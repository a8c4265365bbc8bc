//! Coalesces lease renewals.
//!
//! A client that renews often, or many clients of one lease, would cost a commit with every renewal. A renewal
//! within [`COALESCE_WINDOW`] of one that is in the database is answered without another. The deadline in the
//! database is then earlier than the client was promised, by at most that window, and every process lets a lease
//! live that much longer before it expires it. So the promise survives any crash. A revocation by another process
//! within the window goes unnoticed here.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{Lease, LeaseId};

/// Time for which a renewal answers those that follow, and grace period of every lease.
pub(crate) const COALESCE_WINDOW: Duration = Duration::from_millis(300);
/// Renewals remembered before those outside the window are removed.
const SWEEP_AT: usize = 1024;

/// Leases that this process has renewed recently.
#[derive(Debug, Default)]
pub(crate) struct LeaseRenewals(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    leases: HashMap<LeaseId, Renewal>,
    /// Counts revocations. A renewal that was under way during one may be of the revoked lease.
    revocations: u64,
}

/// A renewal under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartedRenewal {
    at: Instant,
    revocations: u64,
}

#[derive(Clone, Copy, Debug)]
struct Renewal {
    ttl_seconds: i64,
    at: Instant,
}

impl Renewal {
    fn is_recent(&self) -> bool {
        self.at.elapsed() < COALESCE_WINDOW
    }
}

impl LeaseRenewals {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a recently renewed lease, as if it were renewed now.
    pub(crate) fn recent(&self, id: LeaseId) -> Option<Lease> {
        let renewal = self.lock().leases.get(&id).copied().filter(Renewal::is_recent)?;
        let ttl_seconds = renewal.ttl_seconds;
        Some(Lease { id, ttl_seconds, remaining_ms: ttl_seconds.saturating_mul(1000) })
    }

    /// Starts a renewal. To be called before it is submitted to the database.
    pub(crate) fn start(&self) -> StartedRenewal {
        StartedRenewal { at: Instant::now(), revocations: self.lock().revocations }
    }

    /// Records a renewal that the database has committed.
    pub(crate) fn committed(&self, lease: &Lease, started: StartedRenewal) {
        let mut state = self.lock();
        if state.revocations != started.revocations {
            return;
        }
        if state.leases.len() >= SWEEP_AT {
            state.leases.retain(|_, renewal| renewal.is_recent());
        }
        state.leases.insert(lease.id, Renewal { ttl_seconds: lease.ttl_seconds, at: started.at });
    }

    /// Removes a lease that may have been revoked.
    pub(crate) fn revoked(&self, id: LeaseId) {
        let mut state = self.lock();
        state.leases.remove(&id);
        state.revocations += 1;
    }
}
