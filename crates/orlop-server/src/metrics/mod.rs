//! Metrics of the server.
//!
//! Names and labels are Kubernetes', so that dashboards and alerts work unchanged. Label values come from
//! the registry and never from clients, which bounds their number.

mod objects;
mod process;
mod requests;
mod text;

use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::registry::Registry;

pub(crate) use requests::{Labels, Requests};
pub(crate) use text::prometheus as prometheus_text;

use crate::storage::ObjectStore;

/// The metrics of a server.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) requests: Arc<Requests>,
    objects: objects::Objects,
    additional: Additional,
}

/// Registers metrics of other parts of the process.
pub type RegisterMetrics = Box<dyn Fn(&mut Registry) + Send + Sync>;

#[derive(Default)]
struct Additional(Mutex<Vec<RegisterMetrics>>);

impl std::fmt::Debug for Additional {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Additional").finish_non_exhaustive()
    }
}

impl Metrics {
    /// Adds metrics of another part of the process.
    pub(crate) fn add(&self, register: RegisterMetrics) {
        self.additional.0.lock().unwrap_or_else(PoisonError::into_inner).push(register);
    }

    /// Registers all metrics with their current values.
    pub(crate) async fn register(&self, objects: &ObjectStore, registry: &mut Registry) {
        registry.register_collector(Box::new(requests::Collected(self.requests.clone())));
        registry.register_collector(Box::new(self.objects.counts(objects).await));
        registry.register_collector(Box::new(process::Process::now()));
        objects.store.metrics().register(registry);
        for register in self.additional.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            register(registry);
        }
    }
}
