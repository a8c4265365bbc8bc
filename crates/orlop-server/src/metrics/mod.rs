//! Metrics of the server.
//!
//! Names and labels are Kubernetes', so that dashboards and alerts work unchanged. Label values come from
//! the registry and never from clients, which bounds their number.

mod objects;
mod process;
mod requests;
mod text;

use std::sync::Arc;

use prometheus_client::registry::Registry;

pub(crate) use requests::{Labels, Requests};
pub(crate) use text::prometheus as prometheus_text;

use crate::storage::ObjectStore;

/// The metrics of a server.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) requests: Arc<Requests>,
    objects: objects::Objects,
}

impl Metrics {
    /// Registers all metrics with their current values.
    pub(crate) async fn register(&self, objects: &ObjectStore, registry: &mut Registry) {
        registry.register_collector(Box::new(requests::Collected(self.requests.clone())));
        registry.register_collector(Box::new(self.objects.counted(objects).await));
        registry.register_collector(Box::new(process::Process::now()));
        objects.store.metrics().register(registry);
    }
}
