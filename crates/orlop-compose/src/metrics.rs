//! Metrics, under the names and labels that kro's dashboards and alerts know.
//!
//! kro compiles revisions, this controller compiles definitions; `graph_revision_*` therefore counts the same compilations
//! as `rgd_graph_build_*`, and those of stored revisions that are served after a restart.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Labels with their values.
type Labels = Vec<(&'static str, String)>;
type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

/// Buckets of durations in seconds: from one expression to a deletion that waits for finalizers.
const SECONDS: [f64; 10] = [0.0001, 0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0, 600.0];
/// Buckets of counts and sizes.
const SIZES: [f64; 8] = [1.0, 10.0, 100.0, 1_000.0, 10_000.0, 100_000.0, 1_000_000.0, 10_000_000.0];

/// Declares the metrics of one type: variant, name, help.
macro_rules! metrics {
    ($(#[$doc:meta])* $kind:ident { $($variant:ident = $name:literal, $help:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $kind { $($variant),* }

        impl $kind {
            const ALL: &'static [(&'static str, &'static str)] = &[$(($name, $help)),*];
        }
    };
}

metrics! {
    /// Counters. The registry adds `_total` to their names.
    Count {
        Reconcile = "dynamic_controller_reconcile", "Passes over instances";
        Requeue = "dynamic_controller_requeue", "Ends of passes by when the next one is due";
        HandlerAttach = "dynamic_controller_handler_attach", "Watches started";
        HandlerDetach = "dynamic_controller_handler_detach", "Watches stopped";
        HandlerErrors = "dynamic_controller_handler_errors", "Passes over instances that failed";
        Panics = "dynamic_controller_reconcile_panics", "Passes over instances that panicked";
        InformerEvents = "dynamic_controller_informer_events", "Events that watches delivered";
        Route = "dynamic_controller_route", "Events of children and external objects that were routed";
        RouteMatch = "dynamic_controller_route_match", "Instances that such an event was news for";
        InstanceTransitions = "instance_state_transitions", "Changes of the state of instances";
        InstancePasses = "instance_reconcile", "Passes over live instances";
        InstanceErrors = "instance_reconcile_errors", "Passes over instances that failed for good";
        GraphResolved = "instance_graph_resolution_success", "Passes that found a graph";
        GraphUnresolved = "instance_graph_resolution_failures", "Passes that found no graph";
        Builds = "rgd_graph_build", "Compilations of definitions";
        BuildErrors = "rgd_graph_build_errors", "Compilations of definitions that failed";
        DefinitionTransitions = "rgd_state_transitions", "Changes of the state of definitions";
        DefinitionDeletions = "rgd_deletions", "Definitions deleted";
        RevisionsIssued = "rgd_graph_revision_issue", "Revisions issued";
        RevisionResolutions = "rgd_graph_revision_resolution", "Decisions about the revision of a definition";
        RegistryMisses = "rgd_graph_revision_registry_miss", "Definitions whose revision was not in memory";
        RevisionsCollected = "rgd_graph_revision_gc_deleted", "Old revisions deleted";
        CollectionErrors = "rgd_graph_revision_gc_errors", "Old revisions that could not be deleted";
        Compilations = "graph_revision_compile", "Compilations of revisions";
        StatusErrors = "graph_revision_status_update_errors", "Status writes of revisions that failed";
        ActivationDeferred = "graph_revision_activation_deferred", "Revisions not served because their CRD was refused";
        FinalizerEvictions = "graph_revision_finalizer_evictions", "Finalizers removed from deleted revisions";
        RegistryTransitions = "graph_revision_registry_transitions", "Changes of the state of revisions in memory";
        RegistryEvictions = "graph_revision_registry_evictions", "Revisions dropped from memory";
        NodeEvaluations = "runtime_node_eval", "Evaluations of nodes";
        NodeErrors = "runtime_node_eval_errors", "Evaluations of nodes that failed";
        Runtimes = "runtime_creation", "Passes that evaluate a graph";
        IncludeChecks = "runtime_node_ignored_check", "Evaluations of includeWhen";
        NodesIgnored = "runtime_node_ignored", "Nodes that were skipped";
        ReadyChecks = "runtime_node_ready_check", "Evaluations of readyWhen";
        NodesNotReady = "runtime_node_not_ready", "Nodes that were not ready";
        Expressions = "cel_expr_eval", "Evaluations of expressions";
        SchemaHits = "schema_resolver_cache_hits", "Kinds found in memory";
        SchemaMisses = "schema_resolver_cache_misses", "Kinds read from the server";
        SchemaEvictions = "schema_resolver_cache_evictions", "Kinds dropped from memory";
        SchemaErrors = "schema_resolver_errors", "Kinds that could not be read";
        Requests = "rest_client_requests", "Requests to the API server, by code and method";
        Retries = "rest_client_request_retries", "Requests that are made again after 429 or 5xx";
    }
}

metrics! {
    /// Gauges.
    Level {
        Kinds = "dynamic_controller_gvr_count", "Kinds of instances that are served";
        Handlers = "dynamic_controller_handler_count_total", "Watches that run, by what they are for";
        Watches = "dynamic_controller_watch_count", "Watches that run";
        InstanceWatches = "dynamic_controller_instance_watch_count", "Instances that are followed";
        WatchRequests = "dynamic_controller_watch_request_count", "Objects and selectors that instances follow";
        Revisions = "graph_revision_registry_entries", "Revisions in memory";
        Schemas = "schema_resolver_cache_size", "Kinds in memory";
    }
}

metrics! {
    /// Durations.
    Time {
        Reconcile = "dynamic_controller_reconcile_duration_seconds", "Duration of passes over instances";
        WatchSync = "dynamic_controller_informer_sync_duration_seconds", "Time until a watch has listed its objects";
        Instance = "instance_reconcile_duration_seconds", "Duration of passes over live instances";
        Build = "rgd_graph_build_duration_seconds", "Duration of compilations of definitions";
        DefinitionDeletion = "rgd_deletion_duration_seconds", "Time from a definition's deletion to its end";
        Compile = "graph_revision_compile_duration_seconds", "Duration of compilations of revisions";
        NodeEvaluation = "runtime_node_eval_duration_seconds", "Duration of evaluations of nodes";
        Runtime = "runtime_creation_duration_seconds", "Time to prepare the evaluation of a graph";
        Expression = "cel_expr_eval_duration_seconds", "Duration of evaluations of expressions";
        SchemaCall = "schema_resolver_api_call_duration_seconds", "Duration of reads of a kind";
        Request = "rest_client_request_duration_seconds", "Duration of requests to the API server";
    }
}

metrics! {
    /// Sizes.
    Size {
        Collection = "runtime_collection_size", "Items of collections";
        Request = "rest_client_request_size_bytes", "Bodies of requests to the API server";
    }
}

/// Metrics of the controller. Clones share their values.
#[derive(Clone, Debug)]
pub struct Metrics {
    counts: Arc<[Family<Labels, Counter>]>,
    levels: Arc<[Family<Labels, Gauge>]>,
    times: Arc<[Histograms]>,
    sizes: Arc<[Histograms]>,
    conditions: ConditionAges,
}

impl Default for Metrics {
    fn default() -> Self {
        let of = |count: usize, make: fn() -> Histogram| {
            (0..count).map(|_| Family::new_with_constructor(make)).collect()
        };
        Self {
            counts: Count::ALL.iter().map(|_| Family::default()).collect(),
            levels: Level::ALL.iter().map(|_| Family::default()).collect(),
            times: of(Time::ALL.len(), || Histogram::new(SECONDS)),
            sizes: of(Size::ALL.len(), || Histogram::new(SIZES)),
            conditions: ConditionAges::default(),
        }
    }
}

fn owned(labels: &[(&'static str, &str)]) -> Labels {
    labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
}

impl Metrics {
    /// Registers every metric.
    pub fn register(&self, registry: &mut Registry) {
        for ((name, help), family) in Count::ALL.iter().zip(self.counts.iter()) {
            registry.register(*name, *help, family.clone());
        }
        for ((name, help), family) in Level::ALL.iter().zip(self.levels.iter()) {
            registry.register(*name, *help, family.clone());
        }
        for ((name, help), family) in Time::ALL.iter().zip(self.times.iter()) {
            registry.register(*name, *help, family.clone());
        }
        for ((name, help), family) in Size::ALL.iter().zip(self.sizes.iter()) {
            registry.register(*name, *help, family.clone());
        }
        registry.register_collector(Box::new(self.conditions.clone()));
    }

    /// Counts one.
    pub(crate) fn count(&self, what: Count, labels: &[(&'static str, &str)]) {
        self.add(what, labels, 1);
    }

    /// Counts several.
    pub(crate) fn add(&self, what: Count, labels: &[(&'static str, &str)], number: u64) {
        if let Some(family) = self.counts.get(what as usize) {
            family.get_or_create(&owned(labels)).inc_by(number);
        }
    }

    /// Sets a gauge.
    pub(crate) fn set(&self, what: Level, labels: &[(&'static str, &str)], value: usize) {
        if let Some(family) = self.levels.get(what as usize) {
            family.get_or_create(&owned(labels)).set(i64::try_from(value).unwrap_or(i64::MAX));
        }
    }

    /// Raises or lowers a gauge.
    pub(crate) fn change(&self, what: Level, labels: &[(&'static str, &str)], by: i64) {
        if let Some(family) = self.levels.get(what as usize) {
            family.get_or_create(&owned(labels)).inc_by(by);
        }
    }

    /// Records a duration.
    pub(crate) fn took(&self, what: Time, labels: &[(&'static str, &str)], time: Duration) {
        if let Some(family) = self.times.get(what as usize) {
            family.get_or_create(&owned(labels)).observe(time.as_secs_f64());
        }
    }

    /// Records a size.
    pub(crate) fn sized(&self, what: Size, labels: &[(&'static str, &str)], size: usize) {
        if let Some(family) = self.sizes.get(what as usize) {
            #[expect(clippy::cast_precision_loss, reason = "a metric")]
            family.get_or_create(&owned(labels)).observe(size as f64);
        }
    }

    /// Ages of instances' conditions.
    pub(crate) fn conditions(&self) -> &ConditionAges {
        &self.conditions
    }
}

/// An instance: resource, namespace, name.
pub(crate) type Subject = (String, String, String);

/// `instance_condition_current_status_seconds`: how long each condition of each instance has had its status.
///
/// Behind the gate `InstanceConditionMetrics`, since it keeps an entry per condition.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConditionAges {
    subjects: Arc<Mutex<HashMap<Subject, Vec<Age>>>>,
}

/// A condition's status and its beginning in seconds since the epoch.
#[derive(Clone, Debug)]
pub(crate) struct Age {
    pub(crate) kind: String,
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) since_s: i64,
}

impl ConditionAges {
    fn lock(&self) -> MutexGuard<'_, HashMap<Subject, Vec<Age>>> {
        self.subjects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the conditions of an instance.
    pub(crate) fn set(&self, subject: Subject, ages: Vec<Age>) {
        self.lock().insert(subject, ages);
    }

    /// Forgets an instance.
    pub(crate) fn remove(&self, subject: &Subject) {
        self.lock().remove(subject);
    }
}

impl Collector for ConditionAges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let subjects = self.lock();
        if subjects.is_empty() {
            return Ok(());
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let mut metric: MetricEncoder<'_> = encoder.encode_descriptor(
            "instance_condition_current_status_seconds",
            "Time that a condition of an instance has had its status",
            None,
            MetricType::Gauge,
        )?;
        for ((gvr, namespace, name), ages) in subjects.iter() {
            for age in ages {
                let labels: Labels = vec![
                    ("gvr", gvr.clone()),
                    ("namespace", namespace.clone()),
                    ("name", name.clone()),
                    ("condition_type", age.kind.clone()),
                    ("condition_status", age.status.clone()),
                    ("reason", age.reason.clone()),
                ];
                ConstGauge::new(now.saturating_sub(age.since_s).max(0))
                    .encode(metric.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn metrics_have_the_names_of_kro() {
        let metrics = Metrics::default();
        metrics.count(Count::InstancePasses, &[("gvr", "kro.run/v1alpha1/apps")]);
        metrics.change(Level::Handlers, &[("type", "child")], 2);
        metrics.took(Time::Instance, &[("gvr", "a")], Duration::from_millis(3));
        let age = Age { kind: "Ready".into(), status: "True".into(), reason: "Ready".into(), since_s: 0 };
        metrics.conditions().set(("g".into(), "n".into(), "i".into()), vec![age]);
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "instance_reconcile_total{gvr=\"kro.run/v1alpha1/apps\"} 1",
            "dynamic_controller_handler_count_total{type=\"child\"} 2",
            "instance_reconcile_duration_seconds_count{gvr=\"a\"} 1",
            "instance_condition_current_status_seconds{gvr=\"g\",namespace=\"n\",name=\"i\",condition_type=\"Ready\"",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }
}
