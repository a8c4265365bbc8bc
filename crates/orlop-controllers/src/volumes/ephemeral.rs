//! Claims of generic ephemeral volumes: one for each pod, which owns it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Volume};
use orlop_client::{
    Api, Client, ResourceExt,
    api::{ObjectMeta, PostParams},
};

use crate::{
    runtime::{Action, Context, EventForm, Informer, Key, Manager, Recorder},
    status::{is_already_exists, is_namespace_terminating, message},
    workload::{
        ownership::{controller_reference, is_controlled_by},
        pods,
    },
};

/// Name of the controller.
pub(crate) const NAME: &str = "ephemeral-volume-controller";
/// Source of its events.
const COMPONENT: &str = "ephemeral_volume";
const CONCURRENCY: usize = 5;

/// Registers the controller.
pub(crate) fn register(manager: &mut Manager) {
    manager.register(NAME, run);
}

struct Controller {
    client: Client,
    pods: Arc<Informer<Pod>>,
    claims: Arc<Informer<PersistentVolumeClaim>>,
    recorder: Arc<Recorder>,
}

async fn run(context: Context) {
    let controller = Arc::new(Controller {
        client: context.client.clone(),
        pods: context.informers.of(),
        claims: context.informers.of(),
        recorder: context.recorder(COMPONENT, EventForm::Counted),
    });
    let Controller { pods, claims, .. } = &*controller;
    tokio::join!(pods.synced(), claims.synced());
    let queue = context.work_queue::<Key>();
    let of_pods = queue.clone();
    let subscription = pods.subscribe(move |change| {
        if let Some(pod) = change.new.as_ref().filter(|pod| wanted(pod).next().is_some()) {
            of_pods.add(Key::of(&**pod));
        }
    });
    queue
        .run(CONCURRENCY, |key| {
            let controller = controller.clone();
            async move { controller.reconcile(&key).await }
        })
        .await;
    drop(subscription);
}

/// Returns the volumes of a pod that need a claim of their own.
fn wanted(pod: &Pod) -> impl Iterator<Item = &Volume> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter(|volume| volume.ephemeral.is_some() && pods::is_active(pod))
}

/// Returns the claim of a volume. `None` for one without a template, which the API does not let in.
fn claim(pod: &Pod, volume: &Volume) -> Option<PersistentVolumeClaim> {
    let template = volume.ephemeral.as_ref()?.volume_claim_template.clone()?;
    let meta = template.metadata.unwrap_or_default();
    Some(PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(format!("{}-{}", pod.name_any(), volume.name)),
            labels: meta.labels,
            annotations: meta.annotations,
            owner_references: Some(vec![controller_reference(pod)]),
            ..ObjectMeta::default()
        },
        spec: Some(template.spec),
        status: None,
    })
}

/// Returns the reason that a claim is not that of a pod's ephemeral volume, although it has its name.
pub(crate) fn not_owner(pod: &Pod, claim: &PersistentVolumeClaim) -> Option<String> {
    let name = |namespace: Option<String>, name: String| format!("{}/{name}", namespace.unwrap_or_default());
    let (of, pod_name) = (name(claim.namespace(), claim.name_any()), name(pod.namespace(), pod.name_any()));
    (!is_controlled_by(claim, pods::uid(pod)))
        .then(|| format!("PVC {of} was not created for pod {pod_name} (pod is not owner)"))
}

impl Controller {
    async fn reconcile(&self, key: &Key) -> orlop_client::Result<Action> {
        let Some(pod) = self.pods.get(key) else { return Ok(Action::Done) };
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.namespace);
        for volume in wanted(&pod) {
            let Some(claim) = claim(&pod, volume) else { continue };
            let name = claim.name_any();
            let failed = |reason: String| {
                self.recorder.warning(
                    &*pod,
                    "FailedBinding",
                    format!("ephemeral volume {}: {reason}", volume.name),
                );
            };
            if let Some(existing) = self.claims.get(&Key::new(key.namespace.clone(), name.clone())) {
                if let Some(reason) = not_owner(&pod, &existing) {
                    failed(reason);
                    return Ok(Action::Requeue);
                }
                continue;
            }
            match api.create(&PostParams::default(), &claim).await {
                Ok(created) => self.claims.wrote(created),
                Err(error) if is_already_exists(&error) => return Ok(Action::Requeue),
                Err(error) if is_namespace_terminating(&error) => return Ok(Action::Done),
                Err(error) => {
                    failed(format!("create PVC {name}: {}", message(&error)));
                    return Err(error);
                }
            }
        }
        Ok(Action::Done)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn claim_is_named_after_the_pod_and_owned_by_it() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "web", "uid": "1"}, "spec": {"containers": [],
            "volumes": [{"name": "plain", "emptyDir": {}}, {"name": "scratch", "ephemeral": {"volumeClaimTemplate":
                {"metadata": {"labels": {"a": "b"}}, "spec": {"accessModes": ["ReadWriteOnce"]}}}}]}}))
        .unwrap();
        let claims: Vec<_> = wanted(&pod).filter_map(|volume| claim(&pod, volume)).collect();
        assert_eq!(claims.len(), 1);
        assert_eq!(claims[0].name_any(), "web-scratch");
        assert_eq!(claims[0].labels()["a"], "b");
        assert!(is_controlled_by(&claims[0], "1"));
    }
}
