//! Publishes the status of a pod, and deletes its object at its end.

use k8s_openapi::{
    api::core::v1::{Pod, PodCondition},
    jiff::Timestamp,
};
use orlop_client::{
    Api,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::json;

use super::{RETRY, Worker};
use crate::pods::{
    phase,
    status::{self, Facts},
};

impl Worker {
    /// Writes the status if it changed. Returns true if the API has it.
    pub(super) async fn publish(&mut self, deleting: bool) -> bool {
        let policy = self.restart_policy();
        let is_ending = deleting && !self.is_running();
        let known = self.known_conditions();
        let pod_ip = self.pod_ip();
        let host_ip = self.node.settings.address.to_string();
        let facts = Facts {
            pod: &self.pod,
            members: &self.members,
            phase: match &self.ended {
                Some(ended) if !self.is_running() => ended.phase,
                _ => phase::of(&self.members, &policy, is_ending),
            },
            reason: self.ended.as_ref().and_then(|ended| ended.reason.as_deref()),
            message: self.ended.as_ref().and_then(|ended| ended.message.as_deref()),
            start_time: self.start_time,
            host_ip: &host_ip,
            pod_ip: pod_ip.as_deref(),
            known: &known,
            resize: self.resize.as_ref(),
            now: Timestamp::now(),
        };
        let status = status::of(&facts);
        if self.published.as_ref() == Some(&status) {
            return true;
        }
        let pods: Api<Pod> = Api::namespaced(self.node.client.0.clone(), &self.namespace);
        // The object of a static pod is its mirror, which has a uid of its own.
        let is_static = crate::pods::is_static(&self.pod);
        let metadata = if is_static { json!({}) } else { json!({"uid": self.uid}) };
        let mut content = json!(status);
        // A merge keeps conditions that are not mentioned.
        let is_gone = |kind: &&str| {
            let mut shown = status.conditions.iter().flatten();
            known.iter().any(|known| known.type_ == **kind) && !shown.any(|shown| shown.type_ == **kind)
        };
        if let Some(conditions) = content["conditions"].as_array_mut() {
            let gone = status::RESIZE_CONDITIONS.iter().copied().filter(is_gone);
            conditions.extend(gone.map(|kind| json!({"$patch": "delete", "type": kind})));
        }
        let patch = Patch::Strategic(json!({"metadata": metadata, "status": content}));
        match pods.patch_status(&self.name, &PatchParams::default(), &patch).await {
            Ok(_) => {
                self.published = Some(status);
                true
            }
            // Gone, or another of its name: the watch reports it.
            Err(orlop_client::Error::Api(refusal)) if matches!(refusal.code, 404 | 409) => true,
            Err(error) => {
                tracing::warn!(%error, pod = self.name, "cannot write the status of a pod");
                self.wake_in(RETRY);
                false
            }
        }
    }

    /// Deletes the object of a pod of which nothing runs any more. Returns true if the API has taken it.
    pub(super) async fn delete(&mut self) -> bool {
        let pods: Api<Pod> = Api::namespaced(self.node.client.0.clone(), &self.namespace);
        let preconditions = Preconditions { uid: Some(self.uid.clone()), resource_version: None };
        let options = DeleteParams::default().grace_period(0).preconditions(preconditions);
        match pods.delete(&self.name, &options).await {
            Ok(_) => true,
            Err(orlop_client::Error::Api(refusal)) if matches!(refusal.code, 404 | 409) => true,
            Err(error) => {
                tracing::warn!(%error, pod = self.name, "cannot delete a pod that has ended");
                self.wake_in(RETRY);
                false
            }
        }
    }

    /// Returns the conditions of the pod: those that were published last, and those of others.
    fn known_conditions(&self) -> Vec<PodCondition> {
        let conditions = |status: Option<&k8s_openapi::api::core::v1::PodStatus>| {
            status.and_then(|status| status.conditions.clone()).unwrap_or_default()
        };
        let mut known = conditions(self.published.as_ref());
        for condition in conditions(self.pod.status.as_ref()) {
            if !known.iter().any(|own| own.type_ == condition.type_) {
                known.push(condition);
            }
        }
        known
    }
}
