//! Resources that pods request and nodes have. Pure.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, PodSpec, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};

/// Amounts by resource: thousandths of a core for `cpu`, units for everything else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resources(pub(crate) BTreeMap<String, i64>);

impl Resources {
    /// Returns amounts of quantities. Invalid ones, which the API does not let in, are left out.
    pub(crate) fn of(quantities: Option<&BTreeMap<String, Quantity>>) -> Self {
        let quantities = quantities.into_iter().flatten();
        Self(
            quantities.filter_map(|(name, quantity)| Some((name.clone(), amount(name, quantity)?))).collect(),
        )
    }

    /// Returns an amount, zero if there is none.
    pub(crate) fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let sum = self.0.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
    }

    pub(crate) fn subtract(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let sum = self.0.entry(name.clone()).or_default();
            *sum = sum.saturating_sub(*amount);
        }
    }

    /// Raises every amount to at least that of the other.
    fn raise(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let own = self.0.entry(name.clone()).or_insert(*amount);
            *own = (*own).max(*amount);
        }
    }
}

/// Returns a quantity as an amount of a resource.
pub(crate) fn amount(name: &str, quantity: &Quantity) -> Option<i64> {
    let quantity = orlop_api::quantity::Quantity::parse(&quantity.0).ok()?;
    Some(if name == "cpu" { quantity.milli_units() } else { quantity.units() })
}

fn requests_of(requirements: Option<&ResourceRequirements>) -> Resources {
    Resources::of(requirements.and_then(|requirements| requirements.requests.as_ref()))
}

/// Returns the resources that a pod requests at once: those of all containers together, or of its largest step of
/// initialization; the pod's own where it states them; and its overhead.
pub(crate) fn of_pod(spec: &PodSpec) -> Resources {
    of_pod_with(spec, |container| requests_of(container.resources.as_ref()))
}

/// Returns the resources of a pod for scoring, where a container without requests counts as a small one.
pub(crate) fn of_pod_for_scoring(spec: &PodSpec) -> Resources {
    const CPU_MILLI: i64 = 100;
    const MEMORY_BYTES: i64 = 200 << 20;
    of_pod_with(spec, |container| {
        let mut requests = requests_of(container.resources.as_ref());
        requests.0.entry("cpu".to_owned()).or_insert(CPU_MILLI);
        requests.0.entry("memory".to_owned()).or_insert(MEMORY_BYTES);
        requests
    })
}

fn of_pod_with(spec: &PodSpec, of_container: impl Fn(&Container) -> Resources) -> Resources {
    let mut running = Resources::default();
    spec.containers.iter().for_each(|container| running.add(&of_container(container)));
    let (mut sidecars, mut largest_step) = (Resources::default(), Resources::default());
    for container in spec.init_containers.iter().flatten() {
        let own = of_container(container);
        if container.restart_policy.as_deref() == Some("Always") {
            running.add(&own);
            sidecars.add(&own);
            largest_step.raise(&sidecars);
        } else {
            let mut step = own;
            step.add(&sidecars);
            largest_step.raise(&step);
        }
    }
    running.raise(&largest_step);
    for (name, amount) in requests_of(spec.resources.as_ref()).0 {
        running.0.insert(name, amount);
    }
    running.add(&Resources::of(spec.overhead.as_ref()));
    running
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pod_request_is_the_larger_of_running_and_initialization() {
        let container =
            |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
        let mut sidecar = container("s", "100m");
        sidecar["restartPolicy"] = json!("Always");
        let spec: PodSpec = serde_json::from_value(json!({
            "containers": [container("a", "200m"), container("b", "300m")],
            "initContainers": [container("i", "500m"), sidecar, container("j", "1")],
            "overhead": {"cpu": "10m"},
        }))
        .unwrap();
        // Running: 200 + 300 + 100; the step of j: 1000 beside the sidecar's 100.
        assert_eq!(of_pod(&spec).get("cpu"), 1110);
        let empty: PodSpec = serde_json::from_value(json!({"containers": [{"name": "a"}]})).unwrap();
        assert_eq!(of_pod(&empty).get("cpu"), 0);
        assert_eq!(of_pod_for_scoring(&empty).get("cpu"), 100);
        assert_eq!(of_pod_for_scoring(&empty).get("memory"), 200 << 20);
    }
}
