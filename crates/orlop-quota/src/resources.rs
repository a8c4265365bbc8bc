//! Lists of quantities by resource, and the requests and limits of pods.

use std::{collections::BTreeMap, fmt};

use orlop_api::quantity::{Format, Quantity};
use orlop_kinds::{
    accessors::{condition, list, map, present, text},
    quantities,
};
use serde_json::{Map, Value};

/// Quantities by resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceList(pub BTreeMap<String, Quantity>);

impl ResourceList {
    /// Reads the quantities at a JSON pointer. Invalid ones, which validation does not let in, are left out.
    pub fn of(object: &Value, pointer: &str) -> Self {
        let entries = map(object, pointer).iter();
        Self(entries.filter_map(|(name, value)| Some((name.clone(), quantities::parse(value)?))).collect())
    }

    /// Returns the JSON, with quantities in canonical form.
    pub fn to_value(&self) -> Value {
        let entries = self.0.iter().map(|(name, quantity)| (name.clone(), quantity.to_string().into()));
        Value::Object(entries.collect::<Map<String, Value>>())
    }

    /// Returns a quantity.
    pub fn get(&self, name: &str) -> Option<Quantity> {
        self.0.get(name).copied()
    }

    /// Sets a quantity.
    pub fn insert(&mut self, name: impl Into<String>, quantity: Quantity) {
        self.0.insert(name.into(), quantity);
    }

    /// Sets a count of objects.
    pub fn insert_count(&mut self, name: impl Into<String>, count: usize) {
        self.insert(name, Quantity::from_units(i64::try_from(count).unwrap_or(i64::MAX), Format::DecimalSi));
    }

    /// Returns the names.
    pub fn names(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }

    /// Adds quantities.
    pub fn add(&mut self, other: &Self) {
        for (name, quantity) in &other.0 {
            let sum = self.get(name).map_or(*quantity, |own| own.plus(*quantity));
            self.insert(name.clone(), sum);
        }
    }

    /// Raises quantities to at least those of another list.
    pub fn raise(&mut self, other: &Self) {
        for (name, quantity) in &other.0 {
            if self.get(name).is_none_or(|own| *quantity > own) {
                self.insert(name.clone(), *quantity);
            }
        }
    }

    /// Returns the difference, with zero where it would be negative.
    #[must_use]
    pub fn minus_at_least_zero(&self, other: &Self) -> Self {
        let rest = |(name, quantity): (&String, &Quantity)| {
            let rest = other.get(name).map_or(*quantity, |other| quantity.minus(other));
            let rest = if rest.is_negative() { Quantity::from_units(0, Format::DecimalSi) } else { rest };
            (name.clone(), rest)
        };
        Self(self.0.iter().map(rest).collect())
    }

    /// Returns the quantities with these names.
    #[must_use]
    pub fn only(&self, names: &[&str]) -> Self {
        let kept = self.0.iter().filter(|(name, _)| names.contains(&name.as_str()));
        Self(kept.map(|(name, quantity)| (name.clone(), *quantity)).collect())
    }

    /// Returns the quantities that are not zero.
    #[must_use]
    pub fn without_zeros(&self) -> Self {
        let kept = self.0.iter().filter(|(_, quantity)| !quantity.is_zero());
        Self(kept.map(|(name, quantity)| (name.clone(), *quantity)).collect())
    }

    /// Returns true if there are no quantities.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// `cpu=1,memory=2Gi`, by name.
impl fmt::Display for ResourceList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, quantity)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{name}={quantity}")?;
        }
        Ok(())
    }
}

/// Side of a container's requirements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The amounts that are reserved.
    Requests,
    /// The amounts that may be used.
    Limits,
}

impl Side {
    fn pointer(self) -> &'static str {
        match self {
            Self::Requests => "/resources/requests",
            Self::Limits => "/resources/limits",
        }
    }
}

/// Returns the resources that a container asks for.
pub fn of_container(container: &Value, side: Side) -> ResourceList {
    ResourceList::of(container, side.pointer())
}

/// Returns the resources that a pod asks for at once: those of all containers together, or of the largest step of its
/// initialization; the pod's own where it states them.
pub fn of_pod_spec(spec: &Value, side: Side) -> ResourceList {
    let mut sum = of_containers(spec, |container| of_container(container, side));
    apply_pod_level(&mut sum, spec, side);
    sum
}

/// Returns the resources that a pod is charged for: those of its spec, or what its node still gives it while a resize
/// is under way; and its overhead.
pub fn of_pod(pod: &Value, side: Side) -> ResourceList {
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    let is_infeasible =
        condition(pod, "PodResizePending").is_some_and(|pending| text(pending, "/reason") == "Infeasible");
    let mut sum = of_containers(spec, |container| {
        let own = of_container(container, side);
        let Some(status) = status_of(pod, text(container, "/name")) else { return own };
        let mut amounts = if is_infeasible { ResourceList::default() } else { own.clone() };
        let reported = ResourceList::of(status, side.pointer());
        let allocated = match side {
            Side::Requests => ResourceList::of(status, "/allocatedResources"),
            Side::Limits => ResourceList::default(),
        };
        if reported.is_empty() && allocated.is_empty() {
            return own;
        }
        amounts.raise(&reported);
        amounts.raise(&allocated);
        amounts
    });
    apply_pod_level(&mut sum, spec, side);
    let overhead = ResourceList::of(spec, "/overhead");
    match side {
        Side::Requests => sum.add(&overhead),
        // Overhead only raises limits that exist.
        Side::Limits => {
            let limited = overhead.only(&sum.names());
            sum.add(&limited);
        }
    }
    sum
}

fn status_of<'a>(pod: &'a Value, container: &str) -> Option<&'a Value> {
    let statuses = ["/status/containerStatuses", "/status/initContainerStatuses"];
    statuses.into_iter().flat_map(|field| list(pod, field)).find(|status| text(status, "/name") == container)
}

fn of_containers(spec: &Value, amounts: impl Fn(&Value) -> ResourceList) -> ResourceList {
    let (mut running, mut sidecars, mut largest_step) =
        (ResourceList::default(), ResourceList::default(), ResourceList::default());
    list(spec, "/containers").iter().for_each(|container| running.add(&amounts(container)));
    for container in list(spec, "/initContainers") {
        let own = amounts(container);
        if text(container, "/restartPolicy") == "Always" {
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
    running
}

fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

fn apply_pod_level(sum: &mut ResourceList, spec: &Value, side: Side) {
    for (name, quantity) in ResourceList::of(spec, side.pointer()).0 {
        if is_pod_level(&name) {
            sum.insert(name, quantity);
        }
    }
}

/// Returns true if a pod states resources of its own.
pub fn has_pod_level(spec: &Value) -> bool {
    let sides = [Side::Requests, Side::Limits];
    sides.iter().any(|side| map(spec, side.pointer()).keys().any(|name| is_pod_level(name)))
}

/// Returns true if no container of a pod asks for processor time or memory.
pub fn is_best_effort(spec: &Value) -> bool {
    let names = |holder: &Value| {
        [Side::Requests, Side::Limits].iter().any(|side| {
            let named = of_container(holder, *side).without_zeros();
            named.get("cpu").is_some() || named.get("memory").is_some()
        })
    };
    if present(spec, "/resources").is_some() && names(spec) {
        return false;
    }
    let containers = list(spec, "/containers").iter().chain(list(spec, "/initContainers"));
    !containers.into_iter().any(names)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn requests(amounts: &Value) -> Value {
        json!({"resources": {"requests": amounts}})
    }

    #[test]
    fn pod_asks_for_the_larger_of_running_and_initialization() {
        let mut sidecar = requests(&json!({"cpu": "100m"}));
        sidecar["restartPolicy"] = "Always".into();
        let spec = json!({
            "containers": [requests(&json!({"cpu": "200m", "memory": "1Gi"})), requests(&json!({"cpu": "300m"}))],
            "initContainers": [requests(&json!({"cpu": "500m"})), sidecar, requests(&json!({"cpu": "1"}))],
        });
        assert_eq!(of_pod_spec(&spec, Side::Requests).to_string(), "cpu=1100m,memory=1Gi");
    }

    #[test]
    fn pod_level_resources_and_overhead_count() {
        let spec = json!({"containers": [requests(&json!({"cpu": "1"}))], "overhead": {"cpu": "10m"},
            "resources": {"requests": {"cpu": "3"}}});
        assert_eq!(of_pod(&json!({"spec": spec}), Side::Requests).to_string(), "cpu=3010m");
        assert!(has_pod_level(&spec));
    }

    #[test]
    fn resized_pod_is_charged_for_the_larger_of_both_sizes() {
        let mut container = requests(&json!({"cpu": "1"}));
        container["name"] = "c".into();
        let pod = json!({"spec": {"containers": [container]},
            "status": {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "2"}}]}});
        assert_eq!(of_pod(&pod, Side::Requests).to_string(), "cpu=2");
    }

    #[test]
    fn pod_without_requests_is_best_effort() {
        assert!(is_best_effort(&json!({"containers": [{}, requests(&json!({"cpu": "0", "disk": "1"}))]})));
        assert!(!is_best_effort(&json!({"containers": [{}, requests(&json!({"memory": "1"}))]})));
    }
}
