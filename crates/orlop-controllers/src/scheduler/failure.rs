//! Reports of pods that no node can run, and preemption for them.

use std::sync::Arc;

use k8s_openapi::{
    api::core::v1::{Pod, PodCondition},
    apimachinery::pkg::apis::meta::v1::Time,
};
use orlop_client::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::json;
use tokio::time::Instant;

use super::{Scheduler, decision::Failure, preempt::Victims};
use crate::{
    runtime::Key,
    status::{is_conflict, is_not_found},
    workload::{pods, time::now},
};

impl Scheduler {
    /// Says why a pod waits, makes room for it if it is more important than others, and puts it back.
    pub(super) async fn report(&self, key: &Key, pod: &Arc<Pod>, failure: Failure) {
        let nominated = match &failure.victims {
            None => None,
            Some(victims) => {
                self.preempt(pod, victims).await;
                self.lock().cluster.nominate(pod.clone(), victims.node.clone());
                Some(victims.node.clone())
            }
        };
        self.record_failure(pod, "Unschedulable", &failure.message, nominated).await;
        let mut state = self.lock();
        let now = Instant::now();
        state.queue.unschedulable(key, now);
    }

    /// Writes the condition and the event about a failed attempt.
    pub(super) async fn record_failure(
        &self,
        pod: &Pod,
        reason: &str,
        message: &str,
        nominated: Option<String>,
    ) {
        self.recorder.record(pod.object_ref(&()), true, "FailedScheduling", "Scheduling", message.to_owned());
        let old = pods::condition(pod, "PodScheduled");
        let is_same = old.is_some_and(|old| {
            old.status == "False"
                && old.reason.as_deref() == Some(reason)
                && old.message.as_deref() == Some(message)
        });
        if is_same && nominated.is_none() {
            return;
        }
        let since = old.filter(|old| old.status == "False").and_then(|old| old.last_transition_time.clone());
        let condition = condition("PodScheduled", "False", reason, message, since.unwrap_or_else(now));
        let mut status = json!({"conditions": [condition]});
        if let Some(node) = nominated {
            status["nominatedNodeName"] = json!(node);
        }
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let patch = Patch::Strategic(json!({"metadata": {"uid": pod.uid()}, "status": status}));
        match api.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await {
            Ok(written) => self.pods.wrote(written),
            Err(error) if is_not_found(&error) || is_conflict(&error) => {}
            Err(error) => tracing::debug!(%error, pod = pod.name_any(), "condition could not be written"),
        }
    }

    /// Deletes the victims.
    async fn preempt(&self, pod: &Pod, victims: &Victims) {
        for victim in &victims.pods {
            let victim = &victim.pod;
            if pods::is_deleting(victim) {
                continue;
            }
            let api: Api<Pod> = Api::namespaced(self.client.clone(), &victim.namespace().unwrap_or_default());
            let name = victim.name_any();
            let text = "default-scheduler: preempting to accommodate a higher priority pod";
            let condition = condition("DisruptionTarget", "True", "PreemptionByScheduler", text, now());
            let patch = json!({"metadata": {"uid": victim.uid()}, "status": {"conditions": [condition]}});
            let patched = api.patch_status(&name, &PatchParams::default(), &Patch::Strategic(patch)).await;
            let preconditions = Preconditions { uid: victim.uid(), resource_version: None };
            let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            let deleted = match patched {
                Ok(_) => api.delete(&name, &parameters).await.map(drop),
                Err(error) => Err(error),
            };
            match deleted {
                Ok(()) => {
                    let text = format!("Preempted by pod {} on node {}", pods::uid(pod), victims.node);
                    self.recorder.record(victim.object_ref(&()), false, "Preempted", "Preempting", text);
                }
                Err(error) if is_not_found(&error) || is_conflict(&error) => {}
                Err(error) => tracing::warn!(%error, victim = name, "victim could not be preempted"),
            }
        }
    }
}

fn condition(type_: &str, status: &str, reason: &str, message: &str, since: Time) -> PodCondition {
    PodCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: Some(since),
        ..PodCondition::default()
    }
}
