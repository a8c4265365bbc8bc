//! Monitors the storage and publishes its state to health checks, metrics and the log.

use std::{sync::Arc, time::Duration};

use orlop_store::{Store, Txn};
use tokio::{sync::watch, time::timeout};
use tonic_health::{ServingStatus, server::HealthReporter};

use super::metrics::Metrics;
use crate::kinds::Kind;

/// Deadline of a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

/// The storage monitor.
#[derive(Debug)]
pub(crate) struct Monitor {
    pub(crate) store: Store,
    pub(crate) kinds: Vec<&'static Kind>,
    pub(crate) health: HealthReporter,
    pub(crate) metrics: Arc<Metrics>,
    /// Interval of probes.
    pub(crate) period: Duration,
}

impl Monitor {
    /// Probes the storage, and publishes its state if that differs from `before`. Runs once before the server is ready.
    pub(crate) async fn probe(&self, before: Option<bool>) -> bool {
        let serving = match timeout(PROBE_TIMEOUT, read_and_write(&self.store)).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::error!(%error, "storage probe failed");
                false
            }
            Err(_) => {
                tracing::error!(seconds = PROBE_TIMEOUT.as_secs(), "storage probe timed out");
                false
            }
        };
        if before == Some(false) && serving {
            tracing::info!("storage recovered");
        }
        if before != Some(serving) {
            self.publish(serving).await;
        }
        serving
    }

    async fn publish(&self, serving: bool) {
        let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
        self.health.set_service_status("", status).await;
        for kind in &self.kinds {
            self.health.set_service_status(kind.service, status).await;
            self.metrics.service_status(kind.service, serving);
        }
    }

    /// Probes until shutdown, then publishes NOT_SERVING.
    pub(crate) async fn run(self, mut serving: bool, mut stopping: watch::Receiver<bool>) {
        loop {
            let stopped = async { stopping.wait_for(|stopping| *stopping).await.is_ok() };
            if tokio::time::timeout(self.period, stopped).await.is_ok() {
                break;
            }
            serving = self.probe(Some(serving)).await;
        }
        self.publish(false).await;
    }
}

/// Reads, and sends an empty transaction through the writer, which takes the database's lock.
async fn read_and_write(store: &Store) -> Result<(), orlop_store::Error> {
    store.revision().await?;
    store.txn(Txn::default()).await?;
    Ok(())
}
