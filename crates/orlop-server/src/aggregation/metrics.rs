//! Metrics of availability, with kube-aggregator's names.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{MetricType, counter::Counter, family::Family, gauge::ConstGauge},
    registry::Registry,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    name: String,
    reason: String,
}

/// Availability of APIServices.
#[derive(Clone, Debug, Default)]
pub(crate) struct AvailabilityMetrics {
    available: Arc<Mutex<BTreeMap<String, bool>>>,
    became_unavailable: Family<Labels, Counter>,
}

impl AvailabilityMetrics {
    /// Records the availability of an APIService.
    pub(crate) fn set(&self, name: &str, is_available: bool) {
        let mut available = self.available.lock().unwrap_or_else(PoisonError::into_inner);
        available.insert(name.to_owned(), is_available);
    }

    /// Counts an APIService that became unavailable.
    pub(crate) fn count_unavailable(&self, name: &str, reason: &str) {
        let labels = Labels { name: name.to_owned(), reason: reason.to_owned() };
        self.became_unavailable.get_or_create(&labels).inc();
    }

    /// Forgets APIServices that are gone.
    pub(crate) fn retain(&self, exists: impl Fn(&str) -> bool) {
        self.available.lock().unwrap_or_else(PoisonError::into_inner).retain(|name, _| exists(name));
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        let help = "Counter of APIServices which are marked as unavailable broken down by APIService name and reason";
        registry.register("aggregator_unavailable_apiservice", help, self.became_unavailable.clone());
        registry.register_collector(Box::new(Unavailable(self.available.clone())));
    }
}

#[derive(Debug)]
struct Unavailable(Arc<Mutex<BTreeMap<String, bool>>>);

impl Collector for Unavailable {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let help = "Gauge of APIServices which are marked as unavailable broken down by APIService name";
        let mut family =
            encoder.encode_descriptor("aggregator_unavailable_apiservice", help, None, MetricType::Gauge)?;
        for (name, is_available) in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let labels = [("name", name.as_str())];
            ConstGauge::new(i64::from(!is_available)).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
