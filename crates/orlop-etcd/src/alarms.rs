//! The NOSPACE alarm.
//!
//! As in etcd: the first write that the quota refuses raises it; while it is up every put and every new
//! lease is refused, though there may be room again; deletions and compaction go on; an operator who has
//! made room takes it down. It is kept beside the data, so a restart does not take it down.

use std::sync::atomic::{AtomicBool, Ordering};

use orlop_store::{Error, Store};
use tonic::Status;

use crate::errors::{NO_SPACE, status};

const NOTE: &str = "etcd/alarm-nospace";

/// Whether the alarm is up.
#[derive(Debug)]
pub(crate) struct Alarms {
    no_space: AtomicBool,
}

impl Alarms {
    pub(crate) async fn load(store: &Store) -> orlop_store::Result<Self> {
        let up = store.metadata(NOTE).await?.is_some_and(|text| text == "up");
        Ok(Self { no_space: AtomicBool::new(up) })
    }

    pub(crate) fn no_space(&self) -> bool {
        self.no_space.load(Ordering::Acquire)
    }

    /// Refuses what would take more space while the alarm is up.
    pub(crate) fn check(&self) -> Result<(), Status> {
        if self.no_space() { Err(NO_SPACE.into()) } else { Ok(()) }
    }

    /// Raises or lowers the alarm; whether that changed anything.
    pub(crate) async fn set(&self, store: &Store, up: bool) -> orlop_store::Result<bool> {
        let changed = self.no_space.swap(up, Ordering::AcqRel) != up;
        if changed {
            store.set_metadata(NOTE, if up { "up" } else { "down" }).await?;
            tracing::warn!(up, "NOSPACE alarm");
        }
        Ok(changed)
    }

    /// A write's error for the peer; raises the alarm when the quota is what refused it.
    pub(crate) async fn refused(&self, store: &Store, error: Error, quota: bool) -> Status {
        if quota
            && matches!(error, Error::Full(_))
            && let Err(error) = self.set(store, true).await
        {
            tracing::warn!(%error, "the NOSPACE alarm could not be kept");
        }
        status(error)
    }
}
