//! Small plugins for pods that are off by default: AlwaysPullImages, ExtendedResourceToleration,
//! LimitPodHardAntiAffinityTopology. And for services: DenyServiceExternalIPs.

use std::collections::BTreeSet;

use async_trait::async_trait;
use orlop_api::{
    field_error::{FieldError, FieldPath, aggregate},
    status::Status,
};
use orlop_kinds::accessors::{list, map, text, texts};
use serde_json::{Value, json};

use super::pods::{Containers, PODS, map_mut, push, spec, spec_mut};
use crate::{Admission, AdmissionRequest, Operation, Phase, Resources};

const ALL_CONTAINERS: [Containers; 3] = [Containers::Init, Containers::Main, Containers::Ephemeral];

fn is_write(operation: Operation) -> bool {
    matches!(operation, Operation::Create | Operation::Update)
}

/// Makes nodes pull every image, so that a pod runs only what its own pull secrets allow.
#[derive(Debug)]
pub(super) struct AlwaysPullImages;

impl AlwaysPullImages {
    fn is_ignored(request: &AdmissionRequest<'_>, pod: &Value, old: Option<&Value>) -> bool {
        let images = |pod: &Value| -> BTreeSet<String> {
            let containers = ALL_CONTAINERS.iter().flat_map(|list| list.of(spec(pod)));
            containers.map(|container| text(container, "/image").to_owned()).collect()
        };
        !request.subresource().is_empty() || old.is_some_and(|old| images(pod).is_subset(&images(old)))
    }
}

#[async_trait]
impl Admission for AlwaysPullImages {
    fn resources(&self) -> Resources {
        Resources::Only(PODS)
    }

    fn handles(&self, _phase: Phase, operation: Operation) -> bool {
        is_write(operation)
    }

    async fn mutate(
        &self,
        request: &AdmissionRequest<'_>,
        pod: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        if Self::is_ignored(request, pod, old) {
            return Ok(());
        }
        let spec = spec_mut(pod);
        for containers in ALL_CONTAINERS {
            for container in containers.of_mut(spec) {
                map_mut(container).insert("imagePullPolicy".into(), "Always".into());
            }
        }
        for volume in spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(Value::Object(image)) = volume.get_mut("image") {
                image.insert("pullPolicy".into(), "Always".into());
            }
        }
        Ok(())
    }

    async fn validate(
        &self,
        request: &AdmissionRequest<'_>,
        pod: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let Some(pod) = pod.filter(|pod| !Self::is_ignored(request, pod, old)) else { return Ok(()) };
        let path = FieldPath::root("spec");
        let mut errors = Vec::new();
        let mut check = |policy: &str, path: FieldPath| {
            if policy != "Always" {
                let error = FieldError::not_supported(&path, policy, &["Always"]);
                errors.push(request.forbidden(pod, error.to_string()).message);
            }
        };
        for containers in ALL_CONTAINERS {
            for (index, container) in containers.of(spec(pod)).iter().enumerate() {
                let path = path.child(containers.field()).index(index).child("imagePullPolicy");
                check(text(container, "/imagePullPolicy"), path);
            }
        }
        for (index, volume) in list(pod, "/spec/volumes").iter().enumerate() {
            if volume.get("image").is_some_and(Value::is_object) {
                let path = path.child("volumes").index(index).child("image").child("pullPolicy");
                check(text(volume, "/image/pullPolicy"), path);
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(Status::plain(aggregate(&errors))) }
    }
}

/// Lets pods that ask for an extended resource run on the nodes that are tainted with its name.
#[derive(Debug)]
pub(super) struct ExtendedResourceToleration;

#[async_trait]
impl Admission for ExtendedResourceToleration {
    fn resources(&self) -> Resources {
        Resources::Only(PODS)
    }

    fn handles(&self, phase: Phase, operation: Operation) -> bool {
        phase == Phase::Mutating && is_write(operation)
    }

    async fn mutate(
        &self,
        request: &AdmissionRequest<'_>,
        pod: &mut Value,
        _old: Option<&Value>,
    ) -> Result<(), Status> {
        if !request.subresource().is_empty() {
            return Ok(());
        }
        let is_extended = |name: &&String| {
            name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
        };
        let containers = [Containers::Main, Containers::Init].into_iter().flat_map(|list| list.of(spec(pod)));
        let names: BTreeSet<String> = containers
            .flat_map(|container| map(container, "/resources/requests").keys().filter(is_extended))
            .cloned()
            .collect();
        for name in names {
            let toleration = json!({"key": name, "operator": "Exists", "effect": "NoSchedule"});
            let same = |known: &Value| {
                ["key", "operator", "effect"].iter().all(|field| known.get(field) == toleration.get(field))
            };
            if !list(pod, "/spec/tolerations").iter().any(same) {
                push(spec_mut(pod), "tolerations", toleration);
            }
        }
        Ok(())
    }
}

/// Allows required anti-affinity between nodes only.
#[derive(Debug)]
pub(super) struct LimitPodHardAntiAffinityTopology;

#[async_trait]
impl Admission for LimitPodHardAntiAffinityTopology {
    fn resources(&self) -> Resources {
        Resources::Only(PODS)
    }

    fn handles(&self, phase: Phase, operation: Operation) -> bool {
        phase == Phase::Validating && is_write(operation)
    }

    async fn validate(
        &self,
        request: &AdmissionRequest<'_>,
        pod: Option<&Value>,
        _old: Option<&Value>,
    ) -> Result<(), Status> {
        const HOSTNAME: &str = "kubernetes.io/hostname";
        let Some(pod) = pod.filter(|_| request.subresource().is_empty()) else { return Ok(()) };
        let pointer = "/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution";
        let keys = list(pod, pointer).iter().map(|term| text(term, "/topologyKey"));
        let Some(key) = keys.into_iter().find(|key| *key != HOSTNAME) else { return Ok(()) };
        let why = format!(
            "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {HOSTNAME} is allowed"
        );
        Err(request.forbidden(pod, why))
    }
}

/// Refuses new external addresses of services.
#[derive(Debug)]
pub(super) struct DenyServiceExternalIPs;

#[async_trait]
impl Admission for DenyServiceExternalIPs {
    fn resources(&self) -> Resources {
        Resources::Only(&[("", "services")])
    }

    fn handles(&self, phase: Phase, operation: Operation) -> bool {
        phase == Phase::Validating && is_write(operation)
    }

    async fn validate(
        &self,
        request: &AdmissionRequest<'_>,
        service: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let Some(service) = service.filter(|_| request.subresource().is_empty()) else { return Ok(()) };
        let known = old.map(|old| texts(old, "/spec/externalIPs")).unwrap_or_default();
        if texts(service, "/spec/externalIPs").iter().all(|address| known.contains(address)) {
            return Ok(());
        }
        Err(request.forbidden(service, "Use of external IPs is denied by admission control"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::testing::{Run, message};

    #[tokio::test]
    async fn every_image_is_pulled() {
        let pod = json!({"spec": {"containers": [{"name": "c", "image": "i"}], "initContainers": [{"name": "d"}],
            "volumes": [{"name": "v", "image": {"reference": "r"}}]}});
        let pulled = Run::create("", "pods").mutate(&AlwaysPullImages, pod.clone()).await.unwrap();
        assert_eq!(pulled["spec"]["containers"][0]["imagePullPolicy"], "Always");
        assert_eq!(pulled["spec"]["initContainers"][0]["imagePullPolicy"], "Always");
        assert_eq!(pulled["spec"]["volumes"][0]["image"]["pullPolicy"], "Always");
        let unchanged =
            Run::update("", "pods", pod.clone()).mutate(&AlwaysPullImages, pod.clone()).await.unwrap();
        assert_eq!(unchanged, pod);
    }

    #[tokio::test]
    async fn extended_resources_are_tolerated() {
        let pod = json!({"spec": {"containers": [{"resources": {"requests": {"example.org/gpu": "1", "cpu": "1"}}}]}});
        let run = Run::create("", "pods");
        let created = run.mutate(&ExtendedResourceToleration, pod).await.unwrap();
        let toleration = json!({"key": "example.org/gpu", "operator": "Exists", "effect": "NoSchedule"});
        assert_eq!(created["spec"]["tolerations"], json!([toleration]));
        assert_eq!(run.mutate(&ExtendedResourceToleration, created.clone()).await.unwrap(), created);
    }

    #[tokio::test]
    async fn required_anti_affinity_is_between_nodes() {
        let pod = |key: &str| {
            json!({"metadata": {"name": "p"}, "spec": {"affinity": {"podAntiAffinity":
                {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": key}]}}}})
        };
        let run = Run::create("", "pods");
        let plugin = LimitPodHardAntiAffinityTopology;
        assert_eq!(message(run.mutate(&plugin, pod("kubernetes.io/hostname")).await), "");
        assert!(
            message(run.mutate(&plugin, pod("zone")).await).contains("has TopologyKey zone but only key")
        );
    }

    #[tokio::test]
    async fn new_external_addresses_are_denied() {
        let service =
            |addresses: Value| json!({"metadata": {"name": "s"}, "spec": {"externalIPs": addresses}});
        let denied = |run: Run, addresses: Value| async move {
            message(run.mutate(&DenyServiceExternalIPs, service(addresses)).await)
        };
        assert_eq!(
            denied(Run::create("", "services"), json!(["1.2.3.4"])).await,
            "services \"s\" is forbidden: Use of external IPs is denied by admission control"
        );
        assert_eq!(denied(Run::create("", "services"), json!([])).await, "");
        let update = Run::update("", "services", service(json!(["1.2.3.4"])));
        assert_eq!(denied(update, json!(["1.2.3.4"])).await, "");
    }
}
