//! A kind of the Bridge, as declared by its file.

use std::{fmt::Debug, sync::LazyLock};

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{
    step::{Cleaned, Step},
    work::Work,
};
use crate::{
    client::Result,
    cluster::Resource,
    fields::{Field, custom_resource_definition, object_schema, parse},
};

/// Static description of a kind.
#[derive(Debug)]
pub(crate) struct Descriptor {
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) short_names: &'static [&'static str],
    /// Fields of `spec` and `status`, in the notation of [`fields`](crate::fields).
    pub(crate) spec: LazyLock<Vec<Field>>,
    pub(crate) status: LazyLock<Vec<Field>>,
    /// Adds to the schema of `spec` what the notation cannot express: enums, defaults, CEL rules.
    pub(crate) refine_schema: fn(&mut Value),
    /// Kinds of ACK that its phases create, and those that it refers to: service and kind.
    pub(crate) children: &'static [(&'static str, &'static str)],
    pub(crate) references: &'static [(&'static str, &'static str)],
    /// Actions of the least-privilege policy: its own calls. Those of its children are theirs.
    pub(crate) actions: &'static [&'static str],
    /// Printer columns: name, type, path.
    pub(crate) columns: &'static [(&'static str, &'static str, &'static str)],
}

impl Descriptor {
    pub(crate) fn resource(&self, group: &str) -> Resource {
        Resource::new(group, "v1alpha1", (self.kind, self.plural), true)
    }

    pub(crate) fn finalizer(&self, group: &str) -> String {
        format!("finalizers.{group}/{}", self.kind)
    }

    /// Returns the CustomResourceDefinition.
    pub(crate) fn definition(&self, group: &str) -> Value {
        let mut spec = object_schema(&self.spec);
        (self.refine_schema)(&mut spec);
        let mut status = object_schema(&self.status);
        let common = object_schema(&parse("ready:b phase observedGeneration:i nextRetryTime:t"));
        for (name, schema) in common["properties"].as_object().into_iter().flatten() {
            status["properties"][name] = schema.clone();
        }
        let column =
            |name: &str, kind: &str, path: &str| json!({"name": name, "type": kind, "jsonPath": path});
        let mut columns: Vec<Value> =
            self.columns.iter().map(|(name, kind, path)| column(name, kind, path)).collect();
        columns.push(column("Ready", "boolean", ".status.ready"));
        columns.push(column("Phase", "string", ".status.phase"));
        columns.push(column("Age", "date", ".metadata.creationTimestamp"));
        let names = (self.kind, self.plural);
        custom_resource_definition(group, names, true, spec, status, Value::Array(columns), self.short_names)
    }
}

/// Names of a phase, as `status` shows them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phase {
    /// Type of its condition.
    pub(crate) condition: &'static str,
    /// States of `status.phase`: under way, waiting for something outside, done. The last phase is done when all is
    /// [`READY`].
    pub(crate) working: &'static str,
    pub(crate) pending: Option<&'static str>,
    pub(crate) done: &'static str,
}

/// `status.phase` before the first phase, after the last, and while an object is deleted.
pub(crate) const CREATED: &str = "CREATED";
pub(crate) const READY: &str = "READY";
pub(crate) const DELETING: &str = "DELETING";

/// The enum of a kind's phases.
pub(crate) trait Phases: Copy + Send + Sync + 'static {
    /// All of them, in the order in which they run.
    const ALL: &'static [Self];

    fn names(self) -> Phase;
}

/// A kind: its data, and its phases' functions.
#[async_trait]
pub(crate) trait Workflow: Debug + Send + Sync + 'static {
    type Phase: Phases;

    const DESCRIPTOR: &'static Descriptor;

    /// Refuses specs that no phase could make sense of.
    fn check(_spec: &Value) -> std::result::Result<(), String> {
        Ok(())
    }

    /// Makes a phase hold, or returns what it waits for. It is idempotent.
    async fn run_phase(phase: Self::Phase, work: &mut Work<'_>) -> Result<Step>;

    /// Removes what a phase created. It is idempotent.
    async fn clean_phase(phase: Self::Phase, work: &mut Work<'_>) -> Result<Cleaned>;
}

/// A [`Workflow`] of any enum.
#[async_trait]
pub(crate) trait BridgeKind: Debug + Send + Sync {
    fn descriptor(&self) -> &'static Descriptor;
    fn phases(&self) -> Vec<Phase>;
    fn validate(&self, spec: &Value) -> std::result::Result<(), String>;
    async fn run(&self, phase: usize, work: &mut Work<'_>) -> Result<Step>;
    async fn clean(&self, phase: usize, work: &mut Work<'_>) -> Result<Cleaned>;
}

#[async_trait]
impl<W: Workflow> BridgeKind for W {
    fn descriptor(&self) -> &'static Descriptor {
        W::DESCRIPTOR
    }

    fn phases(&self) -> Vec<Phase> {
        W::Phase::ALL.iter().map(|phase| phase.names()).collect()
    }

    fn validate(&self, spec: &Value) -> std::result::Result<(), String> {
        W::check(spec)
    }

    async fn run(&self, phase: usize, work: &mut Work<'_>) -> Result<Step> {
        W::run_phase(W::Phase::ALL[phase], work).await
    }

    async fn clean(&self, phase: usize, work: &mut Work<'_>) -> Result<Cleaned> {
        W::clean_phase(W::Phase::ALL[phase], work).await
    }
}

/// Position of a state in the order of states, in which an object moves forward by one a pass.
pub(super) fn rank(phases: &[Phase], state: &str) -> Option<usize> {
    if state == CREATED {
        return Some(0);
    }
    phases.iter().enumerate().find_map(|(at, phase)| match state {
        _ if state == phase.working || Some(state) == phase.pending => Some(2 * at + 1),
        _ if state == phase.done => Some(2 * at + 2),
        _ => None,
    })
}
