//! Binding: the pod's volumes first, then the pod.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Binding, ObjectReference, PersistentVolume, PersistentVolumeClaim, Pod};
use orlop_client::{
    Api, Resource, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until, timeout};

use super::{Scheduler, volumes::DelayedVolumes};
use crate::{
    runtime::Key,
    status::{is_not_found, message},
    volumes::{SELECTED_NODE, matching},
    workload::pods,
};

/// Limit on waiting for volumes to be made and bound.
const VOLUMES_TIMEOUT: Duration = Duration::from_secs(600);
/// Limit on one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

impl Scheduler {
    /// Binds a pod that is assumed on a node.
    pub(super) async fn bind(&self, key: Key, pod: Arc<Pod>, node: String, volumes: DelayedVolumes) {
        let bound = match self.bind_volumes(&node, volumes).await {
            Ok(()) => self.bind_pod(&pod, &node).await,
            Err(error) => Err(error),
        };
        match bound {
            Ok(()) => {
                let text = format!("Successfully assigned {key} to {node}");
                self.recorder.record(pod.object_ref(&()), false, "Scheduled", "Binding", text);
                self.lock().queue.remove(&key);
            }
            Err(error) => {
                self.lock().cluster.forget(pods::uid(&pod));
                if !error.is_gone {
                    tracing::debug!(error = error.message, pod = %key, "pod could not be bound; retrying");
                    self.record_failure(&pod, "SchedulerError", &error.message, None).await;
                }
                let mut state = self.lock();
                if error.is_gone {
                    state.queue.remove(&key);
                } else {
                    state.queue.failed(&key, Instant::now());
                    state.queue.wake(Instant::now());
                }
                drop(state);
                self.changed.notify_one();
            }
        }
    }

    async fn bind_pod(&self, pod: &Pod, node: &str) -> Result<(), BindError> {
        let binding = Binding {
            metadata: ObjectMeta {
                name: pod.metadata.name.clone(),
                namespace: pod.metadata.namespace.clone(),
                uid: pod.metadata.uid.clone(),
                ..ObjectMeta::default()
            },
            target: ObjectReference {
                kind: Some("Node".to_owned()),
                name: Some(node.to_owned()),
                ..ObjectReference::default()
            },
        };
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let (name, parameters) = (pod.name_any(), PostParams::default());
        let bound = api.create_subresource::<_, Value>("binding", &name, &parameters, &binding);
        match timeout(REQUEST_TIMEOUT, bound).await {
            Ok(bound) => bound.map(drop).map_err(BindError::of),
            Err(_) => Err(BindError { message: "binding timed out".to_owned(), is_gone: false }),
        }
    }

    /// Binds claims that waited for a node, or has their volumes made there.
    async fn bind_volumes(&self, node: &str, volumes: DelayedVolumes) -> Result<(), BindError> {
        if volumes.is_empty() {
            return Ok(());
        }
        for (claim, volume) in &volumes {
            match volume {
                Some(volume) => self.reserve(volume, claim).await?,
                None => self.select_node(claim, node).await?,
            }
        }
        let deadline = Instant::now() + VOLUMES_TIMEOUT;
        loop {
            let changed = self.claim_changed.notified();
            let mut all_bound = true;
            for (claim, volume) in &volumes {
                let Some(current) = self.claims.get(&Key::of(&**claim)) else {
                    return Err(BindError { message: "a claim was deleted".to_owned(), is_gone: false });
                };
                all_bound &= matching::claim_phase(&current) == "Bound";
                // The provisioner takes the node back where it cannot make the volume.
                let is_refused = volume.is_none()
                    && matching::volume_name(&current).is_none()
                    && current.annotations().get(SELECTED_NODE).map(String::as_str) != Some(node);
                if is_refused {
                    let text = format!(
                        "volume of claim {:?} could not be provisioned on node {node:?}",
                        claim.name_any()
                    );
                    return Err(BindError { message: text, is_gone: false });
                }
            }
            if all_bound {
                return Ok(());
            }
            tokio::select! {
                () = changed => {}
                () = sleep_until(deadline) => {
                    let message = "timed out waiting for volumes to be bound".to_owned();
                    return Err(BindError { message, is_gone: false });
                }
            }
        }
    }

    async fn reserve(
        &self,
        volume: &PersistentVolume,
        claim: &PersistentVolumeClaim,
    ) -> Result<(), BindError> {
        if matching::is_for(volume, claim) {
            return Ok(());
        }
        let mut reference = claim.object_ref(&());
        reference.resource_version.clone_from(&claim.metadata.resource_version);
        let patch = json!({
            "metadata": {
                "resourceVersion": volume.metadata.resource_version,
                "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"},
            },
            "spec": {"claimRef": reference},
        });
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        let written = api.patch(&volume.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
        self.volumes.wrote(written.map_err(BindError::of)?);
        Ok(())
    }

    async fn select_node(&self, claim: &PersistentVolumeClaim, node: &str) -> Result<(), BindError> {
        let namespace = claim.namespace().unwrap_or_default();
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &namespace);
        let patch = json!({"metadata": {"annotations": {SELECTED_NODE: node}}});
        let written = api.patch(&claim.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
        self.claims.wrote(written.map_err(BindError::of)?);
        Ok(())
    }
}

/// A failed binding.
struct BindError {
    message: String,
    /// The pod does not exist any more.
    is_gone: bool,
}

impl BindError {
    #[allow(clippy::needless_pass_by_value, reason = "for map_err")]
    fn of(error: orlop_client::Error) -> Self {
        Self { message: message(&error), is_gone: is_not_found(&error) }
    }
}
