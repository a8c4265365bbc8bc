//! Metrics of controllers, under the names that client-go and controller-runtime give them.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

/// Buckets of durations in seconds: from a reconcile that reads one object to one that empties a namespace.
const DURATION_BUCKETS: [f64; 9] = [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 30.0, 60.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Name {
    name: &'static str,
}

type Durations = Family<Name, Histogram, fn() -> Histogram>;

fn durations() -> Durations {
    Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS))
}

/// Metrics of all controllers of a process. Clones share their values.
#[derive(Clone, Debug)]
pub struct Metrics {
    depth: Family<Name, Gauge>,
    adds: Family<Name, Counter>,
    retries: Family<Name, Counter>,
    errors: Family<Name, Counter>,
    waits: Durations,
    works: Durations,
    leader: Family<Name, Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            depth: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            errors: Family::default(),
            waits: durations(),
            works: durations(),
            leader: Family::default(),
        }
    }
}

impl Metrics {
    /// Registers every metric.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("workqueue_depth", "Current depth of the work queue", self.depth.clone());
        registry.register("workqueue_adds", "Items added to the work queue", self.adds.clone());
        registry.register("workqueue_retries", "Items requeued with back-off", self.retries.clone());
        registry.register(
            "workqueue_queue_duration_seconds",
            "Time that an item stays in the work queue before it is processed",
            self.waits.clone(),
        );
        registry.register(
            "workqueue_work_duration_seconds",
            "Time that processing an item takes",
            self.works.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_errors",
            "Reconciliations that failed",
            self.errors.clone(),
        );
        registry.register(
            "leader_election_master_status",
            "1 while this process runs the controller, 0 otherwise",
            self.leader.clone(),
        );
    }

    /// Returns the metrics of one controller.
    pub(super) fn of(&self, controller: &'static str) -> ControllerMetrics {
        let name = Name { name: controller };
        ControllerMetrics {
            depth: self.depth.get_or_create(&name).clone(),
            adds: self.adds.get_or_create(&name).clone(),
            retries: self.retries.get_or_create(&name).clone(),
            errors: self.errors.get_or_create(&name).clone(),
            waits: self.waits.get_or_create(&name).clone(),
            works: self.works.get_or_create(&name).clone(),
            leader: self.leader.get_or_create(&name).clone(),
        }
    }
}

/// Metrics of one controller.
#[derive(Clone, Debug)]
pub(super) struct ControllerMetrics {
    depth: Gauge,
    adds: Counter,
    retries: Counter,
    errors: Counter,
    waits: Histogram,
    works: Histogram,
    leader: Gauge,
}

impl ControllerMetrics {
    pub(super) fn added(&self) {
        self.adds.inc();
    }

    pub(super) fn set_depth(&self, depth: usize) {
        self.depth.set(i64::try_from(depth).unwrap_or(i64::MAX));
    }

    pub(super) fn started(&self, waited: Duration) {
        self.waits.observe(waited.as_secs_f64());
    }

    pub(super) fn finished(&self, worked: Duration) {
        self.works.observe(worked.as_secs_f64());
    }

    pub(super) fn retried(&self) {
        self.retries.inc();
    }

    pub(super) fn failed(&self) {
        self.errors.inc();
    }

    pub(super) fn set_leader(&self, leader: bool) {
        self.leader.set(i64::from(leader));
    }
}
