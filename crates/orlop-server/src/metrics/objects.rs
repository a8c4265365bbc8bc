//! Object counts per resource.

use std::{
    fmt::Error,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use orlop_store::{KeyRange, Read};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, gauge::ConstGauge},
};

use crate::storage::ObjectStore;

/// Interval of counts. Counting reads the index of every kind.
const COUNT_INTERVAL: Duration = Duration::from_secs(30);

/// Cached counts.
#[derive(Debug, Default)]
pub(super) struct Objects(Mutex<Option<(Instant, Counts)>>);

/// A count per resource, such as `deployments.apps`.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts(Vec<(String, i64)>);

impl Objects {
    /// Returns the counts, updated if they are old.
    pub(super) async fn counts(&self, objects: &ObjectStore) -> Counts {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((counted, counts)) = known
            && counted.elapsed() < COUNT_INTERVAL
        {
            return counts;
        }
        let mut counts: Vec<(String, i64)> = Vec::new();
        for kind in objects.registry.kinds().iter().filter(|kind| kind.allows("list")) {
            let resource = kind.group_resource().to_string();
            // A resource that is served in several versions is stored once.
            if counts.last().is_some_and(|(last, _)| *last == resource) {
                continue;
            }
            let read = Read::count(KeyRange::prefix(objects.collection(kind, "")));
            if let Ok(read) = objects.store.read(read).await {
                counts.push((resource, i64::try_from(read.count.unwrap_or(0)).unwrap_or(i64::MAX)));
            }
        }
        let counts = Counts(counts);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), counts.clone()));
        counts
    }
}

impl Collector for Counts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let help = "Number of stored objects at the time of last check split by kind.";
        let mut family =
            encoder.encode_descriptor("apiserver_storage_objects", help, None, MetricType::Gauge)?;
        for (resource, count) in &self.0 {
            let labels = [("resource", resource.as_str())];
            ConstGauge::new(*count).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
