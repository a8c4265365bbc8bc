//! The two kinds that keep a number of pods.

use k8s_openapi::{
    api::{
        apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus},
        core::v1::{
            PodTemplateSpec, ReplicationController, ReplicationControllerCondition,
            ReplicationControllerStatus,
        },
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use orlop_client::{Resource, core::NamespaceResourceScope};
use serde::Serialize;

use crate::{runtime::Cached, workload::selector::Labels};

/// A kind that keeps a number of pods.
pub(super) trait Replicated: Cached + Serialize + Resource<Scope = NamespaceResourceScope> {
    /// Source of its events.
    const COMPONENT: &'static str;
    /// Its status has `terminatingReplicas`.
    const HAS_TERMINATING: bool;

    fn wanted(&self) -> i32;
    fn selector(&self) -> Option<Labels>;
    fn template(&self) -> PodTemplateSpec;
    fn min_ready_seconds(&self) -> i32;
    fn status(&self) -> Status;
    fn set_status(&mut self, status: Status);
}

/// The status of either kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Status {
    pub(super) replicas: i32,
    pub(super) fully_labeled: i32,
    pub(super) ready: i32,
    pub(super) available: i32,
    pub(super) terminating: Option<i32>,
    pub(super) observed_generation: i64,
    pub(super) conditions: Vec<Condition>,
}

/// A condition of either kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Condition {
    pub(super) type_: String,
    pub(super) status: String,
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
    pub(super) last_transition_time: Option<Time>,
}

/// Returns a number as Kubernetes writes it: zero is absent.
fn nonzero(number: i32) -> Option<i32> {
    (number != 0).then_some(number)
}

impl Replicated for ReplicaSet {
    const COMPONENT: &'static str = "replicaset-controller";
    const HAS_TERMINATING: bool = true;

    fn wanted(&self) -> i32 {
        self.spec.replicas.unwrap_or(1)
    }

    fn selector(&self) -> Option<Labels> {
        Labels::of(Some(&self.spec.selector))
    }

    fn template(&self) -> PodTemplateSpec {
        self.spec.template.clone().unwrap_or_default()
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.min_ready_seconds.unwrap_or(0)
    }

    fn status(&self) -> Status {
        let status = self.status.clone().unwrap_or_default();
        Status {
            replicas: status.replicas,
            fully_labeled: status.fully_labeled_replicas.unwrap_or(0),
            ready: status.ready_replicas.unwrap_or(0),
            available: status.available_replicas.unwrap_or(0),
            terminating: status.terminating_replicas,
            observed_generation: status.observed_generation.unwrap_or(0),
            conditions: status
                .conditions
                .into_iter()
                .flatten()
                .map(|condition| Condition {
                    type_: condition.type_.unwrap_or_default(),
                    status: condition.status.unwrap_or_default(),
                    reason: condition.reason,
                    message: condition.message,
                    last_transition_time: condition.last_transition_time,
                })
                .collect(),
        }
    }

    fn set_status(&mut self, status: Status) {
        let conditions: Vec<ReplicaSetCondition> = status
            .conditions
            .into_iter()
            .map(|condition| ReplicaSetCondition {
                type_: Some(condition.type_),
                status: Some(condition.status),
                reason: condition.reason,
                message: condition.message,
                last_transition_time: condition.last_transition_time,
            })
            .collect();
        self.status = Some(ReplicaSetStatus {
            replicas: status.replicas,
            fully_labeled_replicas: nonzero(status.fully_labeled),
            ready_replicas: nonzero(status.ready),
            available_replicas: nonzero(status.available),
            terminating_replicas: status.terminating,
            observed_generation: Some(status.observed_generation),
            conditions: (!conditions.is_empty()).then_some(conditions),
        });
    }
}

impl Replicated for ReplicationController {
    const COMPONENT: &'static str = "replication-controller";
    const HAS_TERMINATING: bool = false;

    fn wanted(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
    }

    fn selector(&self) -> Option<Labels> {
        Some(Labels::of_map(self.spec.as_ref()?.selector.as_ref()?))
    }

    fn template(&self) -> PodTemplateSpec {
        self.spec.as_ref().and_then(|spec| spec.template.clone()).unwrap_or_default()
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0)
    }

    fn status(&self) -> Status {
        let status = self.status.clone().unwrap_or_default();
        Status {
            replicas: status.replicas,
            fully_labeled: status.fully_labeled_replicas.unwrap_or(0),
            ready: status.ready_replicas.unwrap_or(0),
            available: status.available_replicas.unwrap_or(0),
            terminating: None,
            observed_generation: status.observed_generation.unwrap_or(0),
            conditions: status
                .conditions
                .into_iter()
                .flatten()
                .map(|condition| Condition {
                    type_: condition.type_,
                    status: condition.status,
                    reason: condition.reason,
                    message: condition.message,
                    last_transition_time: condition.last_transition_time,
                })
                .collect(),
        }
    }

    fn set_status(&mut self, status: Status) {
        let conditions: Vec<ReplicationControllerCondition> = status
            .conditions
            .into_iter()
            .map(|condition| ReplicationControllerCondition {
                type_: condition.type_,
                status: condition.status,
                reason: condition.reason,
                message: condition.message,
                last_transition_time: condition.last_transition_time,
            })
            .collect();
        self.status = Some(ReplicationControllerStatus {
            replicas: status.replicas,
            fully_labeled_replicas: nonzero(status.fully_labeled),
            ready_replicas: nonzero(status.ready),
            available_replicas: nonzero(status.available),
            observed_generation: Some(status.observed_generation),
            conditions: (!conditions.is_empty()).then_some(conditions),
        });
    }
}
