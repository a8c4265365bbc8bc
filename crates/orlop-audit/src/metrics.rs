//! Counters of audit, named as in Kubernetes.

use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use crate::stage::Level;

/// The part of audit that lost events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plugin {
    /// The queue of a backend.
    Buffered,
    /// The log file.
    Log,
    /// The webhook.
    Webhook,
    /// Truncation: an event was too large even without its objects.
    Truncate,
}

impl Plugin {
    fn as_str(self) -> &'static str {
        match self {
            Self::Buffered => "buffered",
            Self::Log => "log",
            Self::Webhook => "webhook",
            Self::Truncate => "truncate",
        }
    }
}

/// A label set of one label.
type Label = [(&'static str, &'static str); 1];

/// Counters of audit.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    events: Counter,
    errors: Family<Label, Counter>,
    levels: [Counter; 4],
    rejected: Counter,
}

impl Metrics {
    pub(crate) fn event(&self) {
        self.events.inc();
    }

    pub(crate) fn level(&self, level: Level) {
        if let Some(counter) = self.levels.get(level as usize) {
            counter.inc();
        }
    }

    /// Counts events that were not recorded.
    pub(crate) fn lost(&self, plugin: Plugin, events: u64) {
        self.errors.get_or_create(&[("plugin", plugin.as_str())]).inc_by(events);
    }

    pub(crate) fn rejected(&self) {
        self.rejected.inc();
    }

    /// Returns the number of events that a part of audit lost.
    pub fn losses(&self, plugin: Plugin) -> u64 {
        self.errors.get_or_create(&[("plugin", plugin.as_str())]).get()
    }

    /// Registers the counters.
    pub fn register(&self, registry: &mut Registry) {
        let levels = Family::<Label, Counter>::default();
        for (level, counter) in Level::ALL.into_iter().zip(&self.levels) {
            levels.get_or_create(&[("level", level.as_str())]).inc_by(counter.get());
        }
        registry.register(
            "apiserver_audit_event",
            "Counter of audit events generated and sent to the audit backend",
            self.events.clone(),
        );
        registry.register(
            "apiserver_audit_error",
            "Counter of audit events that failed to be audited properly. Plugin identifies the plugin affected by \
             the error",
            self.errors.clone(),
        );
        registry.register(
            "apiserver_audit_level",
            "Counter of policy levels for audit events (1 per request)",
            levels,
        );
        registry.register(
            "apiserver_audit_requests_rejected",
            "Counter of apiserver requests rejected due to an error in audit logging backend",
            self.rejected.clone(),
        );
    }
}
