//! Creates and deletes pods for a controller, with the events that Kubernetes sends about it.

use std::sync::Arc;

use k8s_openapi::{
    api::core::v1::{Pod, PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use orlop_client::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ObjectMeta, PostParams, Preconditions},
};

use crate::{
    runtime::{Informer, Recorder},
    status::{is_conflict, is_namespace_terminating, is_not_found, message},
};

/// Longest prefix of a generated name.
const PREFIX_MAX: usize = 58;

/// Creates and deletes pods.
#[derive(Clone, Debug)]
pub(crate) struct PodControl {
    pub(crate) client: PodClient,
    pub(crate) pods: Arc<Informer<Pod>>,
    pub(crate) recorder: Arc<Recorder>,
}

/// A client that can be printed.
#[derive(Clone)]
pub(crate) struct PodClient(pub(crate) Client);

impl std::fmt::Debug for PodClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

impl PodControl {
    pub(crate) fn new(client: Client, pods: Arc<Informer<Pod>>, recorder: Arc<Recorder>) -> Self {
        Self { client: PodClient(client), pods, recorder }
    }

    fn api(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.0.clone(), namespace)
    }

    /// Creates a pod of `owner`.
    pub(crate) async fn create<O>(&self, owner: &O, pod: Pod) -> orlop_client::Result<Pod>
    where
        O: Resource<DynamicType = ()>,
    {
        let namespace = owner.namespace().unwrap_or_default();
        match self.api(&namespace).create(&PostParams::default(), &pod).await {
            Ok(pod) => {
                self.recorder.normal(owner, "SuccessfulCreate", format!("Created pod: {}", pod.name_any()));
                self.pods.wrote(pod.clone());
                Ok(pod)
            }
            Err(error) => {
                // A namespace in deletion takes no pods, and its owner is about to go too.
                if !is_namespace_terminating(&error) {
                    let text = format!("Error creating: {}", message(&error));
                    self.recorder.warning(owner, "FailedCreate", text);
                }
                Err(error)
            }
        }
    }

    /// Deletes a pod of `owner`. One that is gone already is no error.
    pub(crate) async fn delete<O>(&self, owner: &O, pod: &Pod) -> orlop_client::Result<()>
    where
        O: Resource<DynamicType = ()>,
    {
        match self.remove(pod).await {
            Ok(()) => {
                self.recorder.normal(owner, "SuccessfulDelete", format!("Deleted pod: {}", pod.name_any()));
                Ok(())
            }
            Err(error) if is_not_found(&error) || is_conflict(&error) => Ok(()),
            Err(error) => {
                let text = format!("Error deleting: {}", message(&error));
                self.recorder.warning(owner, "FailedDelete", text);
                Err(error)
            }
        }
    }

    /// Deletes a pod if it still has the same uid.
    pub(crate) async fn remove(&self, pod: &Pod) -> orlop_client::Result<()> {
        let preconditions = Preconditions { uid: pod.uid(), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        self.remove_with(pod, &parameters).await
    }

    /// Deletes a pod, and takes it out of the cache if that removed it at once.
    pub(crate) async fn remove_with(&self, pod: &Pod, parameters: &DeleteParams) -> orlop_client::Result<()> {
        let namespace = pod.namespace().unwrap_or_default();
        let deleted = self.api(&namespace).delete(&pod.name_any(), parameters).await;
        match deleted {
            Ok(answer) => {
                match answer {
                    // It goes when its node says so.
                    Some(left) if left.metadata.deletion_grace_period_seconds.unwrap_or(0) > 0 => {
                        self.pods.wrote(left);
                    }
                    Some(left) if left.metadata.finalizers.as_ref().is_some_and(|all| !all.is_empty()) => {
                        self.pods.wrote(left);
                    }
                    _ => self.pods.deleted(pod),
                }
                Ok(())
            }
            Err(error) => {
                if is_not_found(&error) {
                    self.pods.deleted(pod);
                }
                Err(error)
            }
        }
    }
}

/// Returns a pod of a template, as the pods of most controllers are: a generated name, and the owner.
pub(crate) fn pod_of_template(template: &PodTemplateSpec, name: &str, owner: OwnerReference) -> Pod {
    let meta = template.metadata.clone().unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(name_prefix(name)),
            labels: meta.labels,
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        ..Pod::default()
    }
}

/// Returns the prefix of names of an owner's pods.
pub(crate) fn name_prefix(owner: &str) -> String {
    let prefix = format!("{owner}-");
    prefix.chars().take(PREFIX_MAX).collect()
}
