//! Leader election by Lease, compatible with client-go's: of several candidates one holds the lease and renews
//! it; the others take it once it has not been renewed for its duration.
//!
//! Clocks of different machines are never compared. A candidate notes on its own clock when it saw the lease
//! change, and counts the duration from there. The holder stops at the renew deadline, which is shorter than
//! the duration, so that at no time two of them lead.

use std::{fs, time::Duration};

use futures_util::StreamExt;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use orlop_api::object_meta;
use orlop_client::{
    Api, Client,
    api::{ObjectMeta, PostParams},
    watch_kind,
    watcher::{self, Event},
};
use tokio::time::{Instant, sleep, timeout_at};

use crate::status::{is_conflict, is_not_found};

/// Timing of leader election. The defaults are client-go's.
#[derive(Clone, Debug)]
pub struct LeaderElection {
    /// Name of this candidate, different from every other's.
    pub identity: String,
    /// Namespace of the leases.
    pub namespace: String,
    /// Time after which a lease that is not renewed is free.
    pub lease_duration: Duration,
    /// Time after which a holder that cannot renew gives up. Shorter than the duration.
    pub renew_deadline: Duration,
    /// Time between attempts to acquire or renew.
    pub retry_period: Duration,
}

impl LeaderElection {
    /// Settings for a candidate.
    pub fn new(identity: impl Into<String>) -> Self {
        Self {
            identity: identity.into(),
            namespace: "kube-system".to_owned(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// Returns a name for this process that no other candidate has, on whatever machine: in containers each has the id 1.
pub fn candidate_name() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "orlop" } else { host.trim() };
    format!("{host}_{}", object_meta::uuid(rand::random()))
}

/// A candidate for one lease.
#[derive(Debug)]
pub(super) struct Candidate {
    leases: Api<Lease>,
    name: String,
    settings: LeaderElection,
    /// The lease as last seen, and when this process first saw it so.
    observed: Option<(Lease, Instant)>,
}

impl Candidate {
    pub(super) fn new(client: Client, name: String, settings: LeaderElection) -> Self {
        let leases = Api::namespaced(client, &settings.namespace);
        Self { leases, name, settings, observed: None }
    }

    /// Waits until this candidate holds the lease.
    pub(super) async fn acquire(&mut self) {
        let mut free = Box::pin(wait_until_free(self.leases.clone(), self.name.clone()));
        loop {
            match self.try_acquire().await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => tracing::debug!(%error, lease = self.name, "cannot acquire the lease now"),
            }
            tokio::select! {
                () = sleep(self.settings.retry_period) => continue,
                // A holder that stops in an orderly way frees the lease: no need to wait for the period.
                () = &mut free => {}
            }
            if matches!(self.try_acquire().await, Ok(true)) {
                return;
            }
            // Not at once again: a lease that is free and cannot be acquired would be asked for without pause.
            sleep(self.settings.retry_period).await;
            free = Box::pin(wait_until_free(self.leases.clone(), self.name.clone()));
        }
    }

    /// Renews the lease until that has failed for the renew deadline, or another holds it.
    pub(super) async fn renew(&mut self) {
        let mut renewed = Instant::now();
        loop {
            sleep(self.settings.retry_period).await;
            let deadline = renewed + self.settings.renew_deadline;
            // Counted from before the request: the others may have seen it as early as that.
            let began = Instant::now();
            match timeout_at(deadline, self.try_acquire()).await {
                Ok(Ok(true)) => renewed = began,
                Ok(Ok(false)) if self.holder() != Some(&self.settings.identity) => return,
                Ok(Ok(false)) => {}
                Ok(Err(error)) => tracing::debug!(%error, lease = self.name, "cannot renew the lease now"),
                Err(_) => return,
            }
            if Instant::now() >= deadline {
                return;
            }
        }
    }

    /// Frees the lease, so that another candidate takes it at once.
    pub(super) async fn release(&mut self) -> orlop_client::Result<()> {
        let Some((lease, _)) = &self.observed else { return Ok(()) };
        if self.holder() != Some(&self.settings.identity) {
            return Ok(());
        }
        let mut lease = lease.clone();
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(MicroTime(Timestamp::now()));
        self.leases.replace(&self.name, &PostParams::default(), &lease).await.map(drop)
    }

    fn holder(&self) -> Option<&String> {
        let (lease, _) = self.observed.as_ref()?;
        lease.spec.as_ref()?.holder_identity.as_ref().filter(|holder| !holder.is_empty())
    }

    /// Acquires or renews the lease if that is possible now. Returns whether this candidate holds it.
    async fn try_acquire(&mut self) -> orlop_client::Result<bool> {
        // The holder writes without reading first: optimistic locking detects another holder.
        if self.holder() != Some(&self.settings.identity) {
            match self.leases.get_opt(&self.name).await? {
                None => return self.create().await,
                Some(lease) => self.observe(lease),
            }
        }
        let Some((lease, seen)) = &self.observed else { return Ok(false) };
        let old = lease.spec.clone().unwrap_or_default();
        let held_by_us = self.holder() == Some(&self.settings.identity);
        let duration =
            Duration::from_secs(old.lease_duration_seconds.unwrap_or(0).max(0).unsigned_abs().into());
        if self.holder().is_some() && !held_by_us && seen.elapsed() < duration {
            return Ok(false);
        }
        let mut lease = lease.clone();
        let mut spec = self.spec();
        if held_by_us {
            spec.acquire_time = old.acquire_time;
            spec.lease_transitions = old.lease_transitions;
        } else {
            spec.lease_transitions = Some(old.lease_transitions.unwrap_or(0).saturating_add(1));
        }
        lease.spec = Some(spec);
        match self.leases.replace(&self.name, &PostParams::default(), &lease).await {
            Ok(lease) => self.observe(lease),
            Err(error) if is_conflict(&error) => {
                // Another has written it, or the answer to our own write was lost: read it again.
                if let Some(lease) = self.leases.get_opt(&self.name).await? {
                    self.observe(lease);
                }
                return Ok(false);
            }
            Err(error) => {
                if is_not_found(&error) {
                    self.observed = None;
                }
                return Err(error);
            }
        }
        Ok(true)
    }

    async fn create(&mut self) -> orlop_client::Result<bool> {
        let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
        let lease = Lease { metadata, spec: Some(self.spec()) };
        match self.leases.create(&PostParams::default(), &lease).await {
            Ok(lease) => {
                self.observe(lease);
                Ok(true)
            }
            Err(error) if is_conflict(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Notes the lease, and the time if it has changed.
    fn observe(&mut self, lease: Lease) {
        match &mut self.observed {
            Some((known, _)) if known.spec == lease.spec => *known = lease,
            observed => *observed = Some((lease, Instant::now())),
        }
    }

    fn spec(&self) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        LeaseSpec {
            holder_identity: Some(self.settings.identity.clone()),
            lease_duration_seconds: Some(self.settings.lease_duration.as_secs() as i32),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_transitions: Some(0),
            ..LeaseSpec::default()
        }
    }
}

/// Returns once the lease has no holder or is gone.
async fn wait_until_free(leases: Api<Lease>, name: String) {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = watch_kind(&leases, config);
    while let Some(event) = events.next().await {
        let is_free = match event {
            Ok(Event::Apply(lease) | Event::InitApply(lease)) => {
                lease.spec.and_then(|spec| spec.holder_identity).is_none_or(|holder| holder.is_empty())
            }
            Ok(Event::Delete(_)) => true,
            Ok(Event::Init | Event::InitDone) | Err(_) => false,
        };
        if is_free {
            return;
        }
    }
}
