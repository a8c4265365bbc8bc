//! Usage of objects, by resource.

use orlop_api::{
    group_version::GroupResource,
    quantity::{Format, Quantity},
    time::Time,
};
use orlop_kinds::accessors::{integer, list, present, text, time};
use serde_json::Value;

use crate::resources::{ResourceList, Side, has_pod_level, is_best_effort, of_container, of_pod};

/// Resources whose objects quotas do not count: those that are not stored, and events.
const IGNORED: &[(&str, &str)] = &[
    ("", "bindings"),
    ("", "componentstatuses"),
    ("", "events"),
    ("events.k8s.io", "events"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
];
/// Core resources that are counted by their plain names too.
const LEGACY_COUNTS: &[&str] = &["configmaps", "resourcequotas", "replicationcontrollers", "secrets"];
const POD_RESOURCES: &[&str] = &[
    "count/pods",
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
];
/// Resources that every container must state if a quota limits them.
const REQUIRED: &[&str] =
    &["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];
const SERVICE_RESOURCES: &[&str] =
    &["count/services", "services", "services.loadbalancers", "services.nodeports"];
const CLAIM_RESOURCES: &[&str] = &["persistentvolumeclaims", "requests.storage"];
const STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";
const DEVICE_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
/// Devices that a request for all of them is charged for.
const ALL_DEVICES: i64 = 32;

/// Measures the usage of a resource's objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evaluator {
    /// Pods: their number, and the compute resources of those that have not ended.
    Pods,
    /// Services: their number, load balancers and node ports.
    Services,
    /// PersistentVolumeClaims: their number and storage, in all and by class.
    PersistentVolumeClaims,
    /// ResourceClaims: their number, and devices by class.
    ResourceClaims,
    /// Everything else: the number of objects, by these names.
    Count(Vec<String>),
}

/// A scope of a quota, as a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope<'a> {
    /// Name of the scope.
    pub name: &'a str,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: &'a str,
    /// Values of `In` and `NotIn`.
    pub values: &'a [Value],
}

impl<'a> Scope<'a> {
    /// Reads a requirement of a scope selector.
    pub fn of(requirement: &'a Value) -> Self {
        Self {
            name: text(requirement, "/scopeName"),
            operator: text(requirement, "/operator"),
            values: list(requirement, "/values"),
        }
    }

    /// Returns the scopes of a quota.
    pub fn all_of(quota: &'a Value) -> Vec<Self> {
        let named = list(quota, "/spec/scopes").iter().filter_map(Value::as_str);
        let named = named.map(|name| Scope { name, operator: "Exists", values: &[] });
        named.chain(list(quota, "/spec/scopeSelector/matchExpressions").iter().map(Scope::of)).collect()
    }

    /// Returns true if the requirement selects an object with any of these names, or with none.
    fn selects(&self, names: &[&str]) -> bool {
        let listed = |name: &str| self.values.iter().any(|value| value.as_str() == Some(name));
        match self.operator {
            "Exists" => !names.is_empty(),
            "DoesNotExist" => names.is_empty(),
            "In" => names.iter().any(|name| listed(name)),
            "NotIn" => names.is_empty() || names.iter().any(|name| !listed(name)),
            _ => false,
        }
    }
}

impl Evaluator {
    /// Returns the evaluator of a resource; `None` if quotas do not count it.
    pub fn of(group: &str, resource: &str) -> Option<Self> {
        if IGNORED.contains(&(group, resource)) {
            return None;
        }
        Some(match (group, resource) {
            ("", "pods") => Self::Pods,
            ("", "services") => Self::Services,
            ("", "persistentvolumeclaims") => Self::PersistentVolumeClaims,
            ("resource.k8s.io", "resourceclaims") => Self::ResourceClaims,
            _ => {
                let mut names = vec![format!("count/{}", GroupResource::new(group, resource))];
                if group.is_empty() && LEGACY_COUNTS.contains(&resource) {
                    names.push(resource.to_owned());
                }
                Self::Count(names)
            }
        })
    }

    /// Returns true if a write may change the usage. `old` is absent on create.
    pub fn handles(&self, subresource: &str, object: &Value, old: Option<&Value>) -> bool {
        match (self, subresource, old) {
            (Self::Pods, "", Some(old)) => has_deadline(old) != has_deadline(object),
            (Self::Pods, "resize", old) => old.is_some(),
            (Self::PersistentVolumeClaims, "status", Some(old)) => changes_charge(object, old),
            (Self::Pods | Self::Count(_), "", old) => old.is_none(),
            (Self::Services | Self::PersistentVolumeClaims | Self::ResourceClaims, "", _) => true,
            _ => false,
        }
    }

    /// Returns those of a quota's resources that the evaluator measures, sorted as Kubernetes does.
    pub fn matching<'a>(&self, names: &[&'a str]) -> Vec<&'a str> {
        let mut known: Vec<&str> = names.iter().copied().filter(|name| self.is_fixed(name)).collect();
        known.sort_unstable();
        known.extend(names.iter().filter(|name| self.is_derived(name)));
        known
    }

    fn is_fixed(&self, name: &str) -> bool {
        match self {
            Self::Pods => POD_RESOURCES.contains(&name),
            Self::Services => SERVICE_RESOURCES.contains(&name),
            Self::PersistentVolumeClaims => {
                name == "count/persistentvolumeclaims" || CLAIM_RESOURCES.contains(&name)
            }
            Self::ResourceClaims => name == "count/resourceclaims.resource.k8s.io",
            Self::Count(names) => names.iter().any(|own| own == name),
        }
    }

    /// Returns true for resources that have a class or another name in their name.
    fn is_derived(&self, name: &str) -> bool {
        match self {
            Self::Pods => {
                let is_extended = name.starts_with("requests.")
                    && (!is_native(name) || name.starts_with("requests.deviceclass.resource.kubernetes.io/"));
                name.starts_with("hugepages-") || name.starts_with("requests.hugepages-") || is_extended
            }
            Self::PersistentVolumeClaims => name
                .split_once(STORAGE_CLASS)
                .is_some_and(|(_, resource)| CLAIM_RESOURCES.contains(&resource)),
            Self::ResourceClaims => name.ends_with(DEVICE_CLASS),
            Self::Services | Self::Count(_) => false,
        }
    }

    /// Checks that an object states what quotas of these resources need to know.
    pub fn check_constraints(&self, required: &[&str], object: &Value) -> Result<(), String> {
        let spec = object.get("spec").unwrap_or(&Value::Null);
        if *self != Self::Pods || has_pod_level(spec) {
            return Ok(());
        }
        let containers = || list(spec, "/containers").iter().chain(list(spec, "/initContainers"));
        let mut missing = Vec::new();
        for resource in REQUIRED.iter().filter(|resource| required.contains(*resource)) {
            let mut names: Vec<&str> = containers()
                .filter(|container| {
                    let (requests, limits) =
                        (of_container(container, Side::Requests), of_container(container, Side::Limits));
                    of_compute(&requests, &limits).get(resource).is_none()
                })
                .map(|container| text(container, "/name"))
                .collect();
            names.sort_unstable();
            names.dedup();
            if !names.is_empty() {
                missing.push(format!("{resource} for: {}", names.join(",")));
            }
        }
        if missing.is_empty() { Ok(()) } else { Err(format!("must specify {}", missing.join("; "))) }
    }

    /// Returns the usage of an object.
    pub fn usage(&self, object: &Value, now: Time) -> ResourceList {
        match self {
            Self::Pods => of_pods(object, now),
            Self::Services => of_services(object),
            Self::PersistentVolumeClaims => of_claims(object),
            Self::ResourceClaims => of_resource_claims(object),
            Self::Count(names) => {
                let mut usage = ResourceList::default();
                names.iter().for_each(|name| usage.insert_count(name.as_str(), 1));
                usage
            }
        }
    }

    /// Returns true if an object is in a scope.
    pub fn is_in_scope(&self, scope: &Scope<'_>, object: &Value) -> bool {
        let spec = object.get("spec").unwrap_or(&Value::Null);
        match (self, scope.name) {
            (Self::Pods, "Terminating") => has_deadline(object),
            (Self::Pods, "NotTerminating") => !has_deadline(object),
            (Self::Pods, "BestEffort") => is_best_effort(spec),
            (Self::Pods, "NotBestEffort") => !is_best_effort(spec),
            (Self::Pods, "PriorityClass") => {
                let class = text(spec, "/priorityClassName");
                scope.selects(if class.is_empty() { &[] } else { std::slice::from_ref(&class) })
            }
            (Self::Pods, "CrossNamespacePodAffinity") => uses_other_namespaces(spec),
            (Self::PersistentVolumeClaims, "VolumeAttributesClass") => {
                scope.selects(&attributes_classes(object))
            }
            _ => false,
        }
    }

    /// Returns true if an object is in all scopes of a quota. A quota without scopes is for all objects.
    pub fn is_in_all_scopes(&self, quota: &Value, object: &Value) -> bool {
        Scope::all_of(quota).iter().all(|scope| self.is_in_scope(scope, object))
    }
}

/// Returns true for resource names without a domain or under kubernetes.io.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn has_deadline(pod: &Value) -> bool {
    present(pod, "/spec/activeDeadlineSeconds").and_then(Value::as_i64).is_some_and(|seconds| seconds >= 0)
}

/// Returns true for a pod that is charged for compute resources: it has not ended, and is not overdue.
pub fn is_charged_pod(pod: &Value, now: Time) -> bool {
    if matches!(text(pod, "/status/phase"), "Failed" | "Succeeded") {
        return false;
    }
    let grace = present(pod, "/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64);
    match (time(pod, "/metadata/deletionTimestamp"), grace) {
        (Some(deletion), Some(grace)) => now.unix_seconds <= deletion.unix_seconds.saturating_add(grace),
        _ => true,
    }
}

fn of_pods(pod: &Value, now: Time) -> ResourceList {
    let mut usage = ResourceList::default();
    usage.insert_count("count/pods", 1);
    if is_charged_pod(pod, now) {
        let (requests, limits) = (of_pod(pod, Side::Requests), of_pod(pod, Side::Limits));
        usage.add(&of_compute(&requests, &limits));
    }
    usage
}

/// Returns requests and limits by the names that quotas have for them.
fn of_compute(requests: &ResourceList, limits: &ResourceList) -> ResourceList {
    let mut usage = ResourceList::default();
    usage.insert_count("pods", 1);
    for name in ["cpu", "memory", "ephemeral-storage"] {
        if let Some(request) = requests.get(name) {
            usage.insert(name, request);
            usage.insert(format!("requests.{name}"), request);
        }
        if let Some(limit) = limits.get(name) {
            usage.insert(format!("limits.{name}"), limit);
        }
    }
    for (name, request) in &requests.0 {
        if name.starts_with("hugepages-") {
            usage.insert(name.clone(), *request);
        }
        if name.starts_with("hugepages-") || !is_native(name) {
            usage.insert(format!("requests.{name}"), *request);
        }
    }
    usage
}

fn of_services(service: &Value) -> ResourceList {
    let ports = list(service, "/spec/ports");
    let allocates = present(service, "/spec/allocateLoadBalancerNodePorts") != Some(&Value::Bool(false));
    let with_node_ports = ports.iter().filter(|port| integer(port, "/nodePort") != 0).count();
    let (balancers, node_ports) = match text(service, "/spec/type") {
        "NodePort" => (0, ports.len()),
        "LoadBalancer" if allocates => (1, ports.len()),
        "LoadBalancer" => (1, with_node_ports),
        _ => (0, 0),
    };
    let mut usage = ResourceList::default();
    usage.insert_count("count/services", 1);
    usage.insert_count("services", 1);
    usage.insert_count("services.loadbalancers", balancers);
    usage.insert_count("services.nodeports", node_ports);
    usage
}

/// Returns the storage class of a claim.
pub fn claim_class(claim: &Value) -> &str {
    match orlop_kinds::accessors::annotation(claim, "volume.beta.kubernetes.io/storage-class") {
        "" => text(claim, "/spec/storageClassName"),
        class => class,
    }
}

fn storage_of(claim: &Value) -> Option<Quantity> {
    let round = |quantity: Quantity| Quantity::from_units(quantity.units(), quantity.format());
    let asked = ResourceList::of(claim, "/spec/resources/requests").get("storage").map(round)?;
    let allocated = ResourceList::of(claim, "/status/allocatedResources").get("storage").map(round);
    Some(allocated.map_or(asked, |allocated| asked.max(allocated)))
}

fn of_claims(claim: &Value) -> ResourceList {
    let mut usage = ResourceList::default();
    usage.insert_count("persistentvolumeclaims", 1);
    usage.insert_count("count/persistentvolumeclaims", 1);
    let class = claim_class(claim);
    if !class.is_empty() {
        usage.insert_count(format!("{class}{STORAGE_CLASS}persistentvolumeclaims"), 1);
    }
    if let Some(storage) = storage_of(claim) {
        usage.insert("requests.storage", storage);
        if !class.is_empty() {
            usage.insert(format!("{class}{STORAGE_CLASS}requests.storage"), storage);
        }
    }
    usage
}

fn attributes_classes(claim: &Value) -> Vec<&str> {
    let pointers = [
        "/spec/volumeAttributesClassName",
        "/status/currentVolumeAttributesClassName",
        "/status/modifyVolumeStatus/targetVolumeAttributesClassName",
    ];
    let mut names: Vec<&str> = pointers.iter().map(|pointer| text(claim, pointer)).collect();
    names.retain(|name| !name.is_empty());
    names.sort_unstable();
    names.dedup();
    names
}

fn changes_charge(claim: &Value, old: &Value) -> bool {
    let allocated = |claim: &Value| ResourceList::of(claim, "/status/allocatedResources").get("storage");
    allocated(claim) != allocated(old) || attributes_classes(claim) != attributes_classes(old)
}

fn of_resource_claims(claim: &Value) -> ResourceList {
    let mut usage = ResourceList::default();
    usage.insert_count("count/resourceclaims.resource.k8s.io", 1);
    let devices = |request: &Value| {
        let count = match text(request, "/allocationMode") {
            "All" => ALL_DEVICES,
            "ExactCount" => integer(request, "/count"),
            _ => 0,
        };
        let name = format!("{}{DEVICE_CLASS}", text(request, "/deviceClassName"));
        ResourceList([(name, Quantity::from_units(count, Format::DecimalSi))].into())
    };
    for request in list(claim, "/spec/devices/requests") {
        let mut largest = ResourceList::default();
        list(request, "/firstAvailable").iter().for_each(|request| largest.raise(&devices(request)));
        if let (true, Some(exactly)) = (largest.is_empty(), present(request, "/exactly")) {
            largest = devices(exactly);
        }
        usage.add(&largest);
    }
    usage
}

fn uses_other_namespaces(spec: &Value) -> bool {
    let is_other =
        |term: &Value| !list(term, "/namespaces").is_empty() || present(term, "/namespaceSelector").is_some();
    ["/affinity/podAffinity", "/affinity/podAntiAffinity"].iter().any(|affinity| {
        let required = format!("{affinity}/requiredDuringSchedulingIgnoredDuringExecution");
        let preferred = format!("{affinity}/preferredDuringSchedulingIgnoredDuringExecution");
        let preferred = list(spec, &preferred).iter();
        list(spec, &required).iter().any(is_other)
            || preferred.filter_map(|term| present(term, "/podAffinityTerm")).any(is_other)
    })
}

/// Returns true if a change of an object may lower its usage, so that a quota has to be computed again.
pub fn replenishes(group: &str, resource: &str, object: &Value, old: &Value, now: Time) -> bool {
    match (group, resource) {
        ("", "pods") => {
            let resized = |pod: &Value| (of_pod(pod, Side::Requests), of_pod(pod, Side::Limits));
            has_deadline(object) != has_deadline(old)
                || (is_charged_pod(old, now) && !is_charged_pod(object, now))
                || resized(object) != resized(old)
        }
        ("", "services") => of_services(object) != of_services(old),
        ("", "persistentvolumeclaims") => changes_charge(object, old) || of_claims(object) != of_claims(old),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: Time = Time { unix_seconds: 1_000_000, nanoseconds: 0 };

    fn usage(resource: &str, object: &Value) -> String {
        Evaluator::of("", resource).unwrap().usage(object, NOW).to_string()
    }

    #[test]
    fn pods_are_charged_until_they_end() {
        let mut pod = json!({"spec": {"containers": [{"resources": {
            "requests": {"cpu": "250m", "memory": "1Gi", "hugepages-2Mi": "4Mi", "example.com/gpu": "2"},
            "limits": {"cpu": "1"}}}]}});
        assert_eq!(
            usage("pods", &pod),
            "count/pods=1,cpu=250m,hugepages-2Mi=4Mi,limits.cpu=1,memory=1Gi,pods=1,requests.cpu=250m,\
             requests.example.com/gpu=2,requests.hugepages-2Mi=4Mi,requests.memory=1Gi"
        );
        pod["status"] = json!({"phase": "Failed"});
        assert_eq!(usage("pods", &pod), "count/pods=1");
        pod["status"] = json!({"phase": "Running"});
        pod["metadata"] =
            json!({"deletionTimestamp": "1970-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30});
        assert_eq!(usage("pods", &pod), "count/pods=1");
    }

    #[test]
    fn services_are_charged_for_their_ports_and_balancers() {
        let service = |more: Value| {
            let mut spec = json!({"ports": [{"port": 1}, {"port": 2, "nodePort": 30001}]});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            usage("services", &json!({"spec": spec}))
        };
        let expected = |balancers: u8, ports: u8| {
            format!(
                "count/services=1,services=1,services.loadbalancers={balancers},services.nodeports={ports}"
            )
        };
        assert_eq!(service(json!({"type": "ClusterIP"})), expected(0, 0));
        assert_eq!(service(json!({"type": "NodePort"})), expected(0, 2));
        assert_eq!(service(json!({"type": "LoadBalancer"})), expected(1, 2));
        assert_eq!(
            service(json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false})),
            expected(1, 1)
        );
    }

    #[test]
    fn claims_are_charged_in_all_and_by_class() {
        let claim =
            json!({"spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "2Gi"}}}});
        assert_eq!(
            usage("persistentvolumeclaims", &claim),
            "count/persistentvolumeclaims=1,gold.storageclass.storage.k8s.io/persistentvolumeclaims=1,\
             gold.storageclass.storage.k8s.io/requests.storage=2Gi,persistentvolumeclaims=1,requests.storage=2Gi"
        );
        let evaluator = Evaluator::PersistentVolumeClaims;
        let names = ["requests.storage", "gold.storageclass.storage.k8s.io/requests.storage", "pods"];
        assert_eq!(evaluator.matching(&names), ["requests.storage", names[1]]);
    }

    #[test]
    fn everything_else_is_counted() {
        assert_eq!(usage("secrets", &json!({})), "count/secrets=1,secrets=1");
        let custom = Evaluator::of("example.org", "widgets").unwrap();
        assert_eq!(custom.usage(&json!({}), NOW).to_string(), "count/widgets.example.org=1");
        assert_eq!(Evaluator::of("", "events"), None);
    }

    #[test]
    fn scopes_select_objects() {
        let is_in = |name: &str, operator: &str, values: Value, pod: Value| {
            let requirement = json!({"scopeName": name, "operator": operator, "values": values});
            Evaluator::Pods.is_in_scope(&Scope::of(&requirement), &pod)
        };
        let short = json!({"spec": {"activeDeadlineSeconds": 5, "priorityClassName": "high"}});
        let long = json!({"spec": {}});
        assert!(is_in("Terminating", "Exists", json!([]), short.clone()));
        assert!(is_in("NotTerminating", "Exists", json!([]), long.clone()));
        assert!(is_in("BestEffort", "Exists", json!([]), long.clone()));
        assert!(is_in("PriorityClass", "In", json!(["high"]), short.clone()));
        assert!(!is_in("PriorityClass", "NotIn", json!(["high"]), short.clone()));
        assert!(is_in("PriorityClass", "NotIn", json!(["high"]), long.clone()));
        assert!(is_in("PriorityClass", "DoesNotExist", json!([]), long));
        let term = json!({"namespaces": ["other"]});
        let near = json!({"spec": {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}});
        assert!(is_in("CrossNamespacePodAffinity", "Exists", json!([]), near));
        assert!(!is_in("CrossNamespacePodAffinity", "Exists", json!([]), short));
    }

    #[test]
    fn containers_state_the_compute_resources_that_are_limited() {
        let pod = json!({"spec": {"containers": [{"name": "b"}, {"name": "a"},
            {"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
        assert_eq!(
            Evaluator::Pods.check_constraints(&["pods", "requests.cpu", "limits.memory"], &pod).unwrap_err(),
            "must specify limits.memory for: a,b,c; requests.cpu for: a,b"
        );
    }
}
