//! Leader election by a Lease: one operator at a time reconciles.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, api::PostParams};

use crate::context::{Error, MANAGER};

/// Time after which a lease that is not renewed can be acquired.
const LEASE_DURATION_S: i32 = 15;
/// Time between two attempts.
const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// Time without a renewal after which the leader steps down, well before others may acquire the lease.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);

pub(crate) struct Election {
    leases: Api<Lease>,
    namespace: String,
    identity: String,
}

impl Election {
    pub(crate) fn new(client: Client, namespace: &str) -> Self {
        let host = std::env::var("HOSTNAME").unwrap_or_else(|_| MANAGER.to_owned());
        Self {
            leases: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            identity: format!("{host}_{:016x}", rand::random::<u64>()),
        }
    }

    /// Waits until the lease is held.
    pub(crate) async fn acquire(&self) {
        loop {
            match self.try_acquire().await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "lease could not be acquired"),
            }
            tokio::time::sleep(RETRY_PERIOD).await;
        }
    }

    /// Renews the lease until it is lost. Returns the cause.
    pub(crate) async fn renew_until_lost(&self) -> Error {
        let mut renewed = tokio::time::Instant::now();
        loop {
            tokio::time::sleep(RETRY_PERIOD).await;
            let attempt = tokio::time::timeout(RENEW_DEADLINE, self.try_acquire()).await;
            match attempt {
                Ok(Ok(true)) => renewed = tokio::time::Instant::now(),
                Ok(Ok(false)) => return Error::Leader("another operator holds the lease".to_owned()),
                _ if renewed.elapsed() < RENEW_DEADLINE => {}
                Ok(Err(error)) => return error.into(),
                Err(_) => return Error::Leader("the lease could not be renewed in time".to_owned()),
            }
        }
    }

    /// Releases the lease, so that another operator need not wait for its end. A failure is only logged.
    pub(crate) async fn release(&self) {
        let release = async {
            let Some(mut lease) = self.leases.get_opt(MANAGER).await? else { return Ok(()) };
            let spec = lease.spec.take().unwrap_or_default();
            if spec.holder_identity.as_deref() != Some(&self.identity) {
                return Ok(());
            }
            // As Kubernetes' own candidates do.
            lease.spec = Some(LeaseSpec { holder_identity: Some(String::new()), ..spec });
            self.leases.replace(MANAGER, &PostParams::default(), &lease).await.map(drop)
        };
        match tokio::time::timeout(RETRY_PERIOD, release).await {
            Ok(Ok(())) => tracing::info!("lease released"),
            Ok(Err(error)) => tracing::warn!(%error, "lease could not be released"),
            Err(_) => tracing::warn!("lease could not be released in time"),
        }
    }

    /// Acquires or renews the lease. The API server's optimistic locking decides between candidates.
    async fn try_acquire(&self) -> Result<bool, kube::Error> {
        let Some(mut lease) = self.leases.get_opt(MANAGER).await? else {
            let metadata = ObjectMeta {
                name: Some(MANAGER.to_owned()),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            };
            let lease = Lease { metadata, spec: Some(self.spec(None)) };
            return is_acquired(self.leases.create(&PostParams::default(), &lease).await);
        };
        let spec = lease.spec.take().unwrap_or_default();
        let is_holder = spec.holder_identity.as_deref() == Some(&self.identity);
        let expires = spec.renew_time.as_ref().map(|time| {
            time.0
                + SignedDuration::from_secs(i64::from(
                    spec.lease_duration_seconds.unwrap_or(LEASE_DURATION_S),
                ))
        });
        // A lease without a holder has been released.
        let is_held = spec.holder_identity.as_deref().is_some_and(|holder| !holder.is_empty());
        if is_held && !is_holder && expires.is_some_and(|expires| expires > Timestamp::now()) {
            return Ok(false);
        }
        lease.spec = Some(self.spec(Some((&spec, is_holder))));
        is_acquired(self.leases.replace(MANAGER, &PostParams::default(), &lease).await)
    }

    fn spec(&self, before: Option<(&LeaseSpec, bool)>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let transitions = before.and_then(|(spec, _)| spec.lease_transitions).unwrap_or(0);
        let is_holder = before.filter(|(_, is_holder)| *is_holder);
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(LEASE_DURATION_S),
            acquire_time: is_holder
                .and_then(|(spec, _)| spec.acquire_time.clone())
                .or_else(|| Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(if is_holder.is_some() || before.is_none() {
                transitions
            } else {
                transitions + 1
            }),
            ..LeaseSpec::default()
        }
    }
}

fn is_acquired(result: Result<Lease, kube::Error>) -> Result<bool, kube::Error> {
    match result {
        Ok(_) => Ok(true),
        // Conflict: another candidate acquired it.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}
