//! Watches of object metadata, one per kind and selection, shared by all instances. No object is cached: events are
//! compared with what an instance's last pass saw.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use futures_util::StreamExt as _;
use orlop_client::{
    Api,
    core::{ApiResource, DynamicObject, PartialObjectMeta},
    watch_kind,
    watcher::{Config, Event},
};
use tokio::task::AbortHandle;

use crate::cluster::{Cluster, Resource};
use crate::metrics::{Count, Level, Metrics, Time};
use crate::names;

/// Metadata of an object.
pub(super) type Metadata = PartialObjectMeta<DynamicObject>;

/// Which objects of a kind are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Selection {
    /// Those that this controller made.
    Owned,
    /// All of them: definitions, instances.
    All,
    /// All of them, as objects of others that instances read. A kind may be watched for both reasons.
    External,
}

/// The watches that run. Dropping this ends them.
#[derive(Debug)]
pub(super) struct Watches {
    running: Mutex<HashMap<(Resource, Selection), AbortHandle>>,
    metrics: Metrics,
}

impl Selection {
    fn as_str(self) -> &'static str {
        match self {
            Self::Owned => "child",
            Self::All => "parent",
            Self::External => "external",
        }
    }
}

impl Watches {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self { running: Mutex::default(), metrics }
    }

    /// Starts a watch unless it runs already; `handle` gets its events.
    pub(super) fn ensure(
        &self,
        cluster: &Cluster,
        resource: &Resource,
        selection: Selection,
        handle: impl Fn(Event<Metadata>) + Send + Sync + 'static,
    ) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (resource.clone(), selection);
        if running.contains_key(&key) {
            return;
        }
        let described = ApiResource {
            group: resource.gvk.group.clone(),
            version: resource.gvk.version.clone(),
            api_version: resource.gvk.api_version(),
            kind: resource.gvk.kind.clone(),
            plural: resource.plural.clone(),
        };
        let api: Api<Metadata> = Api::all_with(cluster.client(), &described);
        let config = match selection {
            Selection::Owned => Config::default().labels(&format!("{}=true", names::OWNED)),
            Selection::All | Selection::External => Config::default(),
        };
        let handle = Arc::new(handle);
        let metrics = self.metrics.clone();
        let gvr = resource.to_string();
        let task = tokio::spawn(async move {
            let mut began = Some(Instant::now());
            let mut events = watch_kind(&api, config);
            while let Some(event) = events.next().await {
                let event = match event {
                    Ok(event) => event,
                    Err(error) => {
                        tracing::debug!(%error, kind = described.kind, "watch will be tried again");
                        continue;
                    }
                };
                let what = match event {
                    Event::Apply(_) | Event::InitApply(_) => "apply",
                    Event::Delete(_) => "delete",
                    Event::Init | Event::InitDone => "list",
                };
                let is_synced = matches!(event, Event::InitDone);
                handle(event);
                metrics.count(Count::InformerEvents, &[("gvr", &gvr), ("event_type", what)]);
                if is_synced && let Some(began) = began.take() {
                    metrics.took(Time::WatchSync, &[("gvr", &gvr)], began.elapsed());
                }
            }
        });
        running.insert(key, task.abort_handle());
        self.metrics.count(Count::HandlerAttach, &[("type", selection.as_str())]);
        self.metrics.change(Level::Handlers, &[("type", selection.as_str())], 1);
        self.metrics.set(Level::Watches, &[], running.len());
    }

    /// Ends watches that `wanted` does not name.
    pub(super) fn retain(&self, wanted: impl Fn(&Resource, Selection) -> bool) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|(resource, selection), task| {
            let keep = wanted(resource, *selection);
            if !keep {
                task.abort();
                self.metrics.count(Count::HandlerDetach, &[("type", selection.as_str())]);
                self.metrics.change(Level::Handlers, &[("type", selection.as_str())], -1);
            }
            keep
        });
        self.metrics.set(Level::Watches, &[], running.len());
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        self.retain(|_, _| false);
    }
}
