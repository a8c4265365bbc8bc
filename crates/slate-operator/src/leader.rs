//! Leader election by a Lease: one operator at a time reconciles.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, api::PostParams};

use crate::context::{Error, MANAGER};

/// Time after which a lease that is not renewed is free.
const DURATION_S: i32 = 15;
/// Pause between two attempts.
const RETRY: Duration = Duration::from_secs(2);
/// Time without a renewal after which the holder gives up, well before others may take over.
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
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Renews the lease, and returns when it is lost.
    pub(crate) async fn keep(&self) -> Error {
        let mut renewed = tokio::time::Instant::now();
        loop {
            tokio::time::sleep(RETRY).await;
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

    /// Takes or renews the lease. The API server's optimistic locking decides between candidates.
    async fn try_acquire(&self) -> Result<bool, kube::Error> {
        let Some(mut lease) = self.leases.get_opt(MANAGER).await? else {
            let metadata = ObjectMeta {
                name: Some(MANAGER.to_owned()),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            };
            let lease = Lease { metadata, spec: Some(self.spec(None)) };
            return won(self.leases.create(&PostParams::default(), &lease).await);
        };
        let spec = lease.spec.take().unwrap_or_default();
        let ours = spec.holder_identity.as_deref() == Some(&self.identity);
        let expires = spec.renew_time.as_ref().map(|time| {
            time.0 + SignedDuration::from_secs(i64::from(spec.lease_duration_seconds.unwrap_or(DURATION_S)))
        });
        if !ours && expires.is_some_and(|expires| expires > Timestamp::now()) {
            return Ok(false);
        }
        lease.spec = Some(self.spec(Some((&spec, ours))));
        won(self.leases.replace(MANAGER, &PostParams::default(), &lease).await)
    }

    fn spec(&self, before: Option<(&LeaseSpec, bool)>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let transitions = before.and_then(|(spec, _)| spec.lease_transitions).unwrap_or(0);
        let ours = before.filter(|(_, ours)| *ours);
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(DURATION_S),
            acquire_time: ours.and_then(|(spec, _)| spec.acquire_time.clone()).or_else(|| Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(if ours.is_some() || before.is_none() {
                transitions
            } else {
                transitions + 1
            }),
            ..LeaseSpec::default()
        }
    }
}

fn won(result: Result<Lease, kube::Error>) -> Result<bool, kube::Error> {
    match result {
        Ok(_) => Ok(true),
        // Another candidate was faster.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}
