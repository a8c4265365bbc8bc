//! Flow control of a cluster: its configuration follows the store.
//!
//! A write of a FlowSchema or PriorityLevelConfiguration waits until this process has observed it, so that it is in
//! force when it is answered. Other servers on the same database follow their own watch of the store.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use orlop_api::status::Status;
use orlop_flow_control::{Controller, FlowSchema, PriorityLevel, SystemClock};
use orlop_kinds::flowcontrol::GROUP;
use orlop_store::Revision;
use serde_json::Value;
use tokio::sync::{OnceCell, Semaphore, watch};

use crate::{
    registry::Kind,
    storage::{
        ObjectStore,
        follower::{Follower, Sink},
    },
};

/// Interval at which levels lend each other seats.
const DIVISION_INTERVAL: Duration = Duration::from_secs(10);

/// Options of flow control, which mean what kube-apiserver's mean.
#[derive(Clone, Copy, Debug)]
pub struct FlowControlOptions {
    /// Queues requests by priority and fairness. Otherwise they are rejected beyond the limits.
    pub is_fair: bool,
    /// Maximum number of reading requests in flight; 0 for no limit. With fairness, the sum of both limits is the
    /// number of seats.
    pub reading_max: usize,
    /// Maximum number of mutating requests in flight; 0 for no limit.
    pub mutating_max: usize,
}

impl Default for FlowControlOptions {
    fn default() -> Self {
        Self { is_fair: true, reading_max: 400, mutating_max: 200 }
    }
}

/// Limits of requests in flight, where there is no fairness.
#[derive(Debug)]
pub(crate) struct InFlightLimits {
    pub(crate) reading: Option<Arc<Semaphore>>,
    pub(crate) mutating: Option<Arc<Semaphore>>,
}

/// Flow control of one cluster.
#[derive(Debug)]
pub(crate) struct FlowControl {
    objects: Arc<ObjectStore>,
    pub(crate) controller: Arc<Controller>,
    /// `None` with fairness.
    pub(crate) in_flight: Option<InFlightLimits>,
    /// Revision up to which the configuration is in force.
    synced: watch::Sender<Revision>,
    loaded: OnceCell<()>,
    closing: watch::Receiver<bool>,
}

impl FlowControl {
    pub(crate) fn new(
        objects: Arc<ObjectStore>,
        closing: watch::Receiver<bool>,
        options: FlowControlOptions,
    ) -> Self {
        let FlowControlOptions { is_fair, reading_max, mutating_max } = options;
        let limit = |max: usize| (max > 0).then(|| Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS))));
        let in_flight =
            (!is_fair).then(|| InFlightLimits { reading: limit(reading_max), mutating: limit(mutating_max) });
        let seats = reading_max.saturating_add(mutating_max).max(1);
        Self {
            objects,
            controller: Arc::new(Controller::new(seats, Arc::new(SystemClock))),
            in_flight,
            synced: watch::Sender::new(0),
            loaded: OnceCell::new(),
            closing,
        }
    }

    /// Loads the configuration, follows the store from then on, and divides seats. Does nothing if it is loaded.
    pub(crate) async fn load(self: &Arc<Self>) -> Result<(), Status> {
        let follow = || async {
            let prefix = self.objects.own_key(&format!("{GROUP}/"));
            let sink = ConfigurationSink {
                flow_control: self.clone(),
                levels: BTreeMap::new(),
                schemas: BTreeMap::new(),
            };
            Follower::start(&self.objects, prefix, self.closing.clone(), sink).await?;
            let (controller, mut closing) = (self.controller.clone(), self.closing.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = keep_time(&controller) => {}
                    // An error means that the cluster was dropped.
                    _ = closing.wait_for(|closing| *closing) => {}
                }
            });
            Ok(())
        };
        self.loaded.get_or_try_init(follow).await.copied()
    }

    /// Waits until a revision is in force in this process.
    pub(crate) async fn wait_for(&self, revision: Revision) {
        if !self.loaded.initialized() {
            return;
        }
        let (mut synced, mut closing) = (self.synced.subscribe(), self.closing.clone());
        tokio::select! {
            _ = synced.wait_for(|synced| *synced >= revision) => {}
            _ = closing.wait_for(|closing| *closing) => {}
        }
    }

    /// Returns the revision that is in force, as it changes.
    pub(crate) fn synced(&self) -> watch::Receiver<Revision> {
        self.synced.subscribe()
    }
}

/// Divides seats from time to time, and frees those whose time has come.
async fn keep_time(controller: &Controller) {
    let mut division = tokio::time::interval(DIVISION_INTERVAL);
    loop {
        let due = controller.release_due();
        let released = async {
            match due {
                Some(due) => tokio::time::sleep_until(due.into()).await,
                None => controller.release_needed().await,
            }
        };
        tokio::select! {
            () = released => {}
            _ = division.tick() => controller.divide_seats(),
        }
    }
}

/// Returns true if a kind configures flow control.
pub(crate) fn is_flow_control(kind: &Kind) -> bool {
    kind.gvk.group == GROUP
}

/// Collects the objects, and puts them in force together.
struct ConfigurationSink {
    flow_control: Arc<FlowControl>,
    levels: BTreeMap<String, PriorityLevel>,
    schemas: BTreeMap<String, FlowSchema>,
}

impl Sink for ConfigurationSink {
    fn reset(&mut self) {
        self.levels.clear();
        self.schemas.clear();
    }

    fn apply(&mut self, key: &str, object: Option<&Value>) {
        match key.split_once('/') {
            Some(("prioritylevelconfigurations", name)) => {
                put(&mut self.levels, name, object.and_then(PriorityLevel::decode));
            }
            Some(("flowschemas", name)) => {
                put(&mut self.schemas, name, object.and_then(FlowSchema::decode));
            }
            _ => {}
        }
    }

    fn publish(&mut self, revision: Revision) {
        let (levels, schemas) =
            (self.levels.values().cloned().collect(), self.schemas.values().cloned().collect());
        self.flow_control.controller.configure(levels, schemas);
        self.flow_control.synced.send_modify(|synced| *synced = (*synced).max(revision));
    }
}

fn put<T>(map: &mut BTreeMap<String, T>, name: &str, object: Option<T>) {
    match object {
        Some(object) => {
            map.insert(name.to_owned(), object);
        }
        None => {
            map.remove(name);
        }
    }
}
