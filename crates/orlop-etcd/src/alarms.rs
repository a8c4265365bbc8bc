//! The NOSPACE alarm.
//!
//! As in etcd, the first write over the quota raises it. While it is raised every put and every lease grant fails, even
//! if there is space again; deletes and compaction work. An operator disarms it. It is stored with the data, so it
//! survives restarts.

use std::sync::atomic::{AtomicBool, Ordering};

use orlop_store::{Error, Store};
use tonic::Status;

use crate::errors::{NO_SPACE, status};

const METADATA: &str = "etcd/alarm-nospace";

/// State of the alarm.
#[derive(Debug)]
pub(crate) struct Alarms {
    no_space: AtomicBool,
}

impl Alarms {
    pub(crate) async fn load(store: &Store) -> orlop_store::Result<Self> {
        let raised = store.metadata(METADATA).await?.is_some_and(|text| text == "up");
        Ok(Self { no_space: AtomicBool::new(raised) })
    }

    pub(crate) fn no_space(&self) -> bool {
        self.no_space.load(Ordering::Acquire)
    }

    /// Fails with NOSPACE while the alarm is raised.
    pub(crate) fn check(&self) -> Result<(), Status> {
        if self.no_space() { Err(NO_SPACE.into()) } else { Ok(()) }
    }

    /// Raises or disarms the alarm. Returns `true` if that changed its state.
    pub(crate) async fn set(&self, store: &Store, raised: bool) -> orlop_store::Result<bool> {
        let changed = self.no_space.swap(raised, Ordering::AcqRel) != raised;
        if changed {
            store.set_metadata(METADATA, if raised { "up" } else { "down" }).await?;
            tracing::warn!(raised, "NOSPACE alarm");
        }
        Ok(changed)
    }

    /// Converts the error of a write, and raises the alarm if the quota is the cause.
    pub(crate) async fn status_from_write_error(&self, store: &Store, error: Error, quota: bool) -> Status {
        if quota
            && matches!(error, Error::Full(_))
            && let Err(error) = self.set(store, true).await
        {
            tracing::warn!(%error, "cannot store the NOSPACE alarm");
        }
        status(error)
    }
}
