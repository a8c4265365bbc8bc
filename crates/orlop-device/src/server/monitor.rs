//! Follows the storage's real state and tells it: to health checks, to metrics, to the log.

use std::{sync::Arc, time::Duration};

use orlop_store::{Store, Txn};
use tokio::{sync::watch, time::timeout};
use tonic_health::{ServingStatus, server::HealthReporter};

use super::metrics::Metrics;
use crate::kinds::Kind;

/// How long storage may take to answer before it counts as disconnected.
const ANSWER: Duration = Duration::from_secs(3);

/// What is told, and of which services.
#[derive(Debug)]
pub(crate) struct Monitor {
    pub(crate) store: Store,
    pub(crate) kinds: Vec<&'static Kind>,
    pub(crate) health: HealthReporter,
    pub(crate) metrics: Arc<Metrics>,
    /// How often to look.
    pub(crate) period: Duration,
}

impl Monitor {
    /// Looks once, and tells. The server does this before it says that it is ready.
    pub(crate) async fn look(&self, before: Option<bool>) -> bool {
        let serving = match timeout(ANSWER, probe(&self.store)).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::error!(%error, "storage does not work");
                false
            }
            Err(_) => {
                tracing::error!(seconds = ANSWER.as_secs(), "storage does not answer");
                false
            }
        };
        if before == Some(false) && serving {
            tracing::info!("storage works again");
        }
        if before != Some(serving) {
            self.tell(serving).await;
        }
        serving
    }

    async fn tell(&self, serving: bool) {
        let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
        self.health.set_service_status("", status).await;
        for kind in &self.kinds {
            self.health.set_service_status(kind.service, status).await;
            self.metrics.service_status(kind.service, serving);
        }
    }

    /// Looks until the server stops, and then says that it does not serve any more.
    pub(crate) async fn watch(self, mut serving: bool, mut stopping: watch::Receiver<bool>) {
        loop {
            let stopped = async { stopping.wait_for(|stopping| *stopping).await.is_ok() };
            if tokio::time::timeout(self.period, stopped).await.is_ok() {
                break;
            }
            serving = self.look(Some(serving)).await;
        }
        self.tell(false).await;
    }
}

/// Reads, and goes the way of a write without writing anything: through the queue, to the lock of the
/// database.
async fn probe(store: &Store) -> Result<(), orlop_store::Error> {
    store.revision().await?;
    store.txn(Txn::default()).await?;
    Ok(())
}
