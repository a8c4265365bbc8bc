//! Metrics of the store. The `kine_*` names are those of existing dashboards for SQL-backed control planes.

use std::time::{Duration, Instant};

use prometheus_client::{
    encoding::{EncodeLabelSet, LabelSetEncoder},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

use crate::error::{Error, Result};

/// The call that reads keys and values.
pub(crate) const READ: &str = "read";

/// Labels of a database call.
#[derive(Clone, Debug, Hash, PartialEq, Eq)]
struct Call {
    name: &'static str,
    error_code: &'static str,
}

impl EncodeLabelSet for Call {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), std::fmt::Error> {
        [("name", self.name), ("error_code", self.error_code)].encode(encoder)
    }
}

/// One label with a fixed set of values.
#[derive(Clone, Debug, Hash, PartialEq, Eq)]
struct Label(&'static str, &'static str);

impl EncodeLabelSet for Label {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), std::fmt::Error> {
        [(self.0, self.1)].encode(encoder)
    }
}

/// The store's metrics. Cheap to clone; clones count together.
#[derive(Clone, Debug)]
pub struct Metrics {
    sql_total: Family<Call, Counter>,
    sql_time: Family<Call, Histogram, fn() -> Histogram>,
    /// Series of successful reads, cached since they are by far the most frequent.
    reads: (Counter, Histogram),
    compact_total: Family<Label, Counter>,
    insert_errors: Family<Label, Counter>,
    batch_size: Histogram,
    queue_wait: Histogram,
    watch_lag: Gauge,
    watchers: Gauge,
    watch_wakes: Counter,
    database_bytes: Gauge,
    database_used_bytes: Gauge,
    revision: Gauge,
    values: Family<Label, Counter>,
}

fn milliseconds_doubling() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 14))
}

impl Default for Metrics {
    fn default() -> Self {
        let sql_total = Family::<Call, Counter>::default();
        let sql_time: Family<Call, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(milliseconds_doubling);
        let read = Call { name: READ, error_code: "" };
        Self {
            reads: (sql_total.get_or_create_owned(&read), sql_time.get_or_create_owned(&read)),
            sql_total,
            sql_time,
            compact_total: Family::default(),
            insert_errors: Family::default(),
            batch_size: Histogram::new(exponential_buckets(1.0, 2.0, 12)),
            queue_wait: Histogram::new(exponential_buckets(0.0001, 2.0, 16)),
            watch_lag: Gauge::default(),
            watchers: Gauge::default(),
            watch_wakes: Counter::default(),
            database_bytes: Gauge::default(),
            database_used_bytes: Gauge::default(),
            revision: Gauge::default(),
            values: Family::default(),
        }
    }
}

impl Metrics {
    /// Adds every metric to a registry, for `/metrics`.
    pub fn register(&self, registry: &mut Registry) {
        // Series exist from the start, so that a dashboard can tell zero from absent.
        for (family, label, values) in [
            (&self.compact_total, "result", ["success", "error"]),
            (&self.insert_errors, "retriable", ["true", "false"]),
            (&self.values, "result", ["hit", "miss"]),
        ] {
            for value in values {
                drop(family.get_or_create(&Label(label, value)));
            }
        }
        registry.register("kine_sql", "Total number of SQL operations", self.sql_total.clone());
        registry.register("kine_sql_time_seconds", "Length of time per SQL operation", self.sql_time.clone());
        registry.register("kine_compact", "Total number of compactions", self.compact_total.clone());
        registry.register(
            "kine_insert_errors",
            "Total number of batches that failed or were retried",
            self.insert_errors.clone(),
        );
        registry.register("orlop_store_batch_size", "Transactions per commit", self.batch_size.clone());
        registry.register(
            "orlop_store_queue_seconds",
            "Time that transactions wait for the writer",
            self.queue_wait.clone(),
        );
        registry.register(
            "orlop_store_watch_lag",
            "Revisions not yet dispatched to watchers",
            self.watch_lag.clone(),
        );
        registry.register("orlop_store_watchers", "Open watches", self.watchers.clone());
        registry.register(
            "orlop_store_watch_wakes",
            "Commits enqueued to a watcher, or watchers marked as lagging",
            self.watch_wakes.clone(),
        );
        registry.register("orlop_store_database_bytes", "Size of the database", self.database_bytes.clone());
        registry.register(
            "orlop_store_database_used_bytes",
            "Bytes of the database that hold data",
            self.database_used_bytes.clone(),
        );
        registry.register("orlop_store_revision", "The newest revision", self.revision.clone());
        registry.register(
            "orlop_store_listed_values",
            "Values of lists on PostgreSQL by value cache result",
            self.values.clone(),
        );
    }

    /// Records a database call.
    pub(crate) fn sql<T>(&self, name: &'static str, started: Instant, result: &Result<T>) {
        if name == READ && result.is_ok() {
            self.reads.0.inc();
            return self.reads.1.observe(started.elapsed().as_secs_f64());
        }
        let call = Call { name, error_code: result.as_ref().err().map_or("", code) };
        self.sql_total.get_or_create(&call).inc();
        self.sql_time.get_or_create(&call).observe(started.elapsed().as_secs_f64());
    }

    pub(crate) fn compacted<T>(&self, result: &Result<T>) {
        let outcome = if result.is_ok() { "success" } else { "error" };
        self.compact_total.get_or_create(&Label("result", outcome)).inc();
    }

    /// Records a batch that is retried (`retriable`) or has failed.
    pub(crate) fn insert_error(&self, retriable: bool) {
        let value = if retriable { "true" } else { "false" };
        self.insert_errors.get_or_create(&Label("retriable", value)).inc();
    }

    pub(crate) fn batch(&self, size: usize) {
        self.batch_size.observe(size as f64);
    }

    pub(crate) fn queued(&self, wait: Duration) {
        self.queue_wait.observe(wait.as_secs_f64());
    }

    pub(crate) fn watch_lag(&self, revisions: i64) {
        self.watch_lag.set(revisions);
    }

    pub(crate) fn watchers(&self, open: usize) {
        self.watchers.set(open as i64);
    }

    pub(crate) fn watcher_woken(&self) {
        self.watch_wakes.inc();
    }

    /// Records value cache hits and misses of a list.
    pub(crate) fn value_cache(&self, hits: usize, misses: usize) {
        for (result, values) in [("hit", hits), ("miss", misses)] {
            self.values.get_or_create(&Label("result", result)).inc_by(values as u64);
        }
    }

    pub(crate) fn revision(&self, revision: i64) {
        self.revision.set(revision);
    }

    pub(crate) fn size(&self, size: crate::Size) {
        self.database_bytes.set(size.total as i64);
        self.database_used_bytes.set(size.used as i64);
    }
}

fn code(error: &Error) -> &'static str {
    match error {
        Error::Full(_) => "full",
        Error::Unavailable(_) => "unavailable",
        Error::AmbiguousCommit(_) => "unresolved",
        Error::Corrupt { .. } => "corrupt",
        Error::Expired { .. } => "expired",
        _ => "other",
    }
}
