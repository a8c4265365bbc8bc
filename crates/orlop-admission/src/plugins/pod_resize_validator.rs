//! PodResizeValidator: a resize fits the node that the pod is on.

use std::sync::Arc;

use async_trait::async_trait;
use orlop_api::{
    quantity::{Format, Quantity},
    status::Status,
};
use orlop_kinds::accessors::{integer, map, text};
use orlop_quota::{
    ResourceList,
    resources::{Side, of_pod_spec},
};
use serde_json::Value;

use super::pods::{PODS, spec};
use crate::{
    Admission, AdmissionRequest, Operation, Phase, Resources,
    listers::{Listers, NODES},
};

/// Checks resizes against nodes.
#[derive(Debug)]
pub(super) struct PodResizeValidator {
    listers: Arc<dyn Listers>,
}

impl PodResizeValidator {
    pub(super) fn new(listers: Arc<dyn Listers>) -> Self {
        Self { listers }
    }
}

#[async_trait]
impl Admission for PodResizeValidator {
    fn resources(&self) -> Resources {
        Resources::Only(PODS)
    }

    fn handles(&self, phase: Phase, operation: Operation) -> bool {
        (phase, operation) == (Phase::Validating, Operation::Update)
    }

    async fn validate(
        &self,
        request: &AdmissionRequest<'_>,
        pod: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let (Some(pod), Some(old), "resize") = (pod, old, request.subresource()) else { return Ok(()) };
        let name = text(pod, "/spec/nodeName");
        let generation = |pod: &Value| integer(pod, "/metadata/generation");
        if name.is_empty() || generation(pod) == generation(old) {
            return Ok(());
        }
        let Some(node) = self.listers.get(NODES, "", name).await? else {
            return Err(request.forbidden(pod, format!("node {name:?} not found")));
        };
        let refuse = |why: String, reason: &str| Err(request.forbidden(pod, why).with_cause(reason, "", ""));
        let system = map(&node, "/metadata/labels").get("kubernetes.io/os").and_then(Value::as_str);
        if let Some(system) = system.filter(|system| *system != "linux") {
            let why = format!("pod resize is only supported on linux nodes, node {name:?} is {system:?}");
            return refuse(why, "UnsupportedPlatform");
        }
        match exceeded(pod, &node) {
            parts if parts.is_empty() => Ok(()),
            parts => {
                let why = format!("node didn't have enough allocatable resources: {}", parts.join("; "));
                refuse(why, "NodeCapacity")
            }
        }
    }
}

fn exceeded(pod: &Value, node: &Value) -> Vec<String> {
    let mut requests = of_pod_spec(spec(pod), Side::Requests);
    requests.add(&ResourceList::of(pod, "/spec/overhead"));
    let allocatable = ResourceList::of(node, "/status/allocatable");
    let zero = Quantity::from_units(0, Format::DecimalSi);
    let amounts = |name: &str| (requests.get(name).unwrap_or(zero), allocatable.get(name).unwrap_or(zero));
    let mut parts = Vec::new();
    let (asked, given) = amounts("cpu");
    if asked > given {
        parts.push(format!("cpu, requested: {}, allocatable: {}", asked.milli_units(), given.milli_units()));
    }
    let (asked, given) = amounts("memory");
    if asked > given {
        parts.push(format!("memory, requested: {}, allocatable: {}", asked.units(), given.units()));
    }
    parts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plugins::testing::{FakeListers, Run, message};

    #[tokio::test]
    async fn resize_fits_the_node() {
        let node =
            json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "2", "memory": "1Gi"}}});
        let plugin = PodResizeValidator::new(FakeListers::with(&[(NODES, "", node)]));
        let pod = |generation: i64, cpu: &str| {
            json!({"metadata": {"name": "p", "generation": generation}, "spec": {"nodeName": "n",
                "containers": [{"resources": {"requests": {"cpu": cpu}}}]}})
        };
        let resized = |cpu: &'static str| {
            let (run, plugin) = (Run::update("", "pods", pod(1, "1")).at("resize"), &plugin);
            let pod = pod(2, cpu);
            async move { message(run.mutate(plugin, pod).await) }
        };
        assert_eq!(resized("2").await, "");
        assert_eq!(
            resized("3").await,
            "pods \"p\" is forbidden: node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: \
             2000"
        );
    }
}
