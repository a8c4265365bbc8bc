//! Follows a Service and its endpoints. Only those of extension API servers are followed, and only while they are.

use std::sync::{Arc, Mutex, PoisonError};

use orlop_aggregator::routing::{Service, ServiceState, Slice};
use orlop_api::status::Status;
use orlop_store::Revision;
use serde_json::Value;
use tokio::sync::watch;

use crate::{
    aggregation::Backend,
    storage::{
        ObjectStore,
        follower::{Follower, Sink},
    },
};

/// Label with the name of a slice's Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Follows the Service of an extension API server until the returned sender is dropped.
pub(super) async fn follow(
    objects: &Arc<ObjectStore>,
    backend: &Arc<Backend>,
) -> Result<watch::Sender<bool>, Status> {
    let (stop, stopped) = watch::channel(false);
    let shared = Arc::new(Mutex::new(Shared::default()));
    let (namespace, name) = (&backend.key.namespace, &backend.key.name);
    let parts = [
        (Part::Service, format!("core/services/{namespace}/{name}")),
        (Part::Endpoints, format!("core/endpoints/{namespace}/{name}")),
        (Part::Slices, format!("discovery.k8s.io/endpointslices/{namespace}/")),
    ];
    for (part, key) in parts {
        let sink = PartSink { part, backend: backend.clone(), shared: shared.clone() };
        Follower::start(objects, objects.own_key(&key), stopped.clone(), sink).await?;
    }
    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
    shared.is_loaded = true;
    backend.set_state(&shared.state);
    drop(shared);
    Ok(stop)
}

#[derive(Debug, Default)]
struct Shared {
    state: ServiceState,
    is_loaded: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Service,
    Slices,
    Endpoints,
}

/// Keeps a part of the state.
struct PartSink {
    part: Part,
    backend: Arc<Backend>,
    shared: Arc<Mutex<Shared>>,
}

impl PartSink {
    fn change(&self, change: impl FnOnce(&mut ServiceState)) {
        change(&mut self.shared.lock().unwrap_or_else(PoisonError::into_inner).state);
    }
}

impl Sink for PartSink {
    fn reset(&mut self) {
        self.change(|state| match self.part {
            Part::Service => state.service = None,
            Part::Slices => state.slices.clear(),
            Part::Endpoints => state.endpoints.clear(),
        });
    }

    fn apply(&mut self, key: &str, object: Option<&Value>) {
        // Another object's name may begin with that of this one.
        if self.part != Part::Slices && !key.is_empty() {
            return;
        }
        self.change(|state| match self.part {
            Part::Service => state.service = object.map(Service::parse),
            Part::Endpoints => state.endpoints = object.map(Slice::parse_endpoints).unwrap_or_default(),
            Part::Slices => {
                let own = object.filter(|slice| {
                    slice["metadata"]["labels"][SERVICE_NAME].as_str() == Some(self.backend.key.name.as_str())
                });
                match own {
                    Some(slice) => drop(state.slices.insert(key.to_owned(), Slice::parse(slice))),
                    None => drop(state.slices.remove(key)),
                }
            }
        });
    }

    fn publish(&mut self, _revision: Revision) {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.is_loaded {
            self.backend.set_state(&shared.state);
        }
    }
}
