//! The Node object and its Lease.

use std::{collections::BTreeMap, fs, time::Duration};

use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::{
            ContainerImage, DaemonEndpoint, Node as NodeObject, NodeAddress, NodeCondition,
            NodeDaemonEndpoints, NodeStatus, NodeSystemInfo,
        },
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference, Time},
    },
    jiff::Timestamp,
};
use orlop_client::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    context::Node, events::Severity, pods::status::whole_seconds, quantity::Resources, settings::Settings,
    shim::processes,
};

/// Namespace of nodes' leases.
const LEASE_NAMESPACE: &str = "kube-node-lease";
const LEASE_SECONDS: i32 = 40;
const RENEW: Duration = Duration::from_secs(10);
/// Interval at which the status is computed, and the longest without a write.
const STATUS: Duration = Duration::from_secs(10);
const STATUS_UNCHANGED: Duration = Duration::from_secs(300);
/// Delays between attempts to register.
const REGISTER_MIN: Duration = Duration::from_millis(100);
const REGISTER_MAX: Duration = Duration::from_secs(7);
/// Attempts to register a node that another process of this machine is: one may be ending.
const CLAIMS_MAX: u32 = 5;
/// Version of the kubelet that this node behaves as.
const KUBELET_VERSION: &str = "v1.37.1";
/// Images that the status lists.
const IMAGES_MAX: usize = 50;

/// Returns the resources of this machine.
pub(crate) fn capacity(settings: &Settings) -> Resources {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.split_whitespace().next())
        .unwrap_or("0");
    let storage =
        rustix::fs::statvfs(&settings.data_dir).map_or(0, |found| found.f_blocks * found.f_frsize / 1024);
    [
        ("cpu", cores.to_string()),
        ("memory", format!("{memory}Ki")),
        ("ephemeral-storage", format!("{storage}Ki")),
        ("pods", settings.pods_max.to_string()),
        ("hugepages-1Gi", "0".to_owned()),
        ("hugepages-2Mi", "0".to_owned()),
    ]
    .into_iter()
    .map(|(name, amount)| (name.to_owned(), Quantity(amount)))
    .collect()
}

/// Another process is the node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken;

/// Registers the node. Returns once the API has it.
pub(crate) async fn register(node: &Node, port: u16) -> Result<NodeObject, Taken> {
    let nodes: Api<NodeObject> = Api::all(node.client.0.clone());
    let mut delay = REGISTER_MIN;
    let mut refused = 0;
    loop {
        match try_register(&nodes, node, port).await {
            Ok(Ok(registered)) => return Ok(registered),
            Ok(Err(Taken)) if refused == CLAIMS_MAX => return Err(Taken),
            Ok(Err(Taken)) => refused += 1,
            Err(error) => tracing::warn!(%error, "cannot register the node; trying again"),
        }
        sleep(delay).await;
        delay = (delay * 2).min(REGISTER_MAX);
    }
}

async fn try_register(
    nodes: &Api<NodeObject>,
    node: &Node,
    port: u16,
) -> orlop_client::Result<Result<NodeObject, Taken>> {
    let claim = |found: &NodeObject| node.claim(found.metadata.uid.as_deref().unwrap_or_default());
    let labels = labels(&node.settings);
    let status = status(node, port, &NodeObject::default(), true);
    let name = &node.settings.name;
    match nodes.get_opt(name).await? {
        None => {
            let object = NodeObject {
                metadata: ObjectMeta {
                    name: Some(name.clone()),
                    labels: Some(labels),
                    ..ObjectMeta::default()
                },
                status: Some(status),
                ..NodeObject::default()
            };
            let created = nodes.create(&PostParams::default(), &object).await?;
            Ok(if claim(&created) { Ok(created) } else { Err(Taken) })
        }
        // Nothing is written as long as another process is the node.
        Some(existing) if !claim(&existing) => Ok(Err(Taken)),
        Some(existing) => {
            let status = self::status(node, port, &existing, true);
            let patch = Patch::Strategic(json!({"metadata": {"labels": labels}}));
            nodes.patch(name, &PatchParams::default(), &patch).await?;
            let patch = Patch::Strategic(json!({"status": status}));
            Ok(Ok(nodes.patch_status(name, &PatchParams::default(), &patch).await?))
        }
    }
}

fn labels(settings: &Settings) -> BTreeMap<String, String> {
    let architecture = architecture();
    let mut labels: BTreeMap<String, String> = [
        ("kubernetes.io/hostname", settings.name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", architecture),
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", architecture),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    labels.extend(settings.labels.clone());
    labels
}

/// Returns the architecture by Go's name.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Returns the status of the node. Resources of others in the object are kept.
fn status(node: &Node, port: u16, existing: &NodeObject, is_ready: bool) -> NodeStatus {
    let known = existing.status.clone().unwrap_or_default();
    let mut capacity = known.capacity.clone().unwrap_or_default();
    capacity.extend(self::capacity(&node.settings));
    let address = |kind: &str, address: String| NodeAddress { type_: kind.to_owned(), address };
    NodeStatus {
        addresses: Some(vec![
            address("InternalIP", node.settings.address.to_string()),
            address("Hostname", node.settings.name.clone()),
        ]),
        allocatable: Some(capacity.clone()),
        capacity: Some(capacity),
        conditions: Some(conditions(&known, is_ready)),
        daemon_endpoints: Some(NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint { port: i32::from(port) }),
        }),
        images: Some(images(node.settings.images.names())),
        node_info: Some(system_info()),
        ..NodeStatus::default()
    }
}

/// Returns the images of a status, as API servers store them: without sizes of zero.
fn images(names: Vec<String>) -> Vec<ContainerImage> {
    let images = names.into_iter().take(IMAGES_MAX);
    images.map(|name| ContainerImage { names: Some(vec![name]), size_bytes: None }).collect()
}

fn conditions(known: &NodeStatus, is_ready: bool) -> Vec<NodeCondition> {
    let now = Time(whole_seconds(Timestamp::now()));
    let ready = match is_ready {
        true => ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        false => ("Ready", "False", "KubeletNotReady", "node is shutting down"),
    };
    [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ready,
    ]
    .map(|(kind, status, reason, message)| {
        let mut same = known.conditions.iter().flatten();
        let same = same.find(|known| known.type_ == kind && known.status == status);
        NodeCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_heartbeat_time: Some(now.clone()),
            last_transition_time: same
                .and_then(|known| known.last_transition_time.clone())
                .or(Some(now.clone())),
        }
    })
    .into()
}

fn system_info() -> NodeSystemInfo {
    let read = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
    let release = read("/etc/os-release");
    let os_image = release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))
        .map_or_else(|| "Linux".to_owned(), |name| name.trim_matches('"').to_owned());
    NodeSystemInfo {
        machine_id: read("/etc/machine-id"),
        system_uuid: read("/sys/class/dmi/id/product_uuid"),
        boot_id: processes::boot_id(),
        kernel_version: read("/proc/sys/kernel/osrelease"),
        os_image,
        container_runtime_version: format!("orlop://{}", env!("CARGO_PKG_VERSION")),
        kubelet_version: KUBELET_VERSION.to_owned(),
        kube_proxy_version: String::new(),
        operating_system: "linux".to_owned(),
        architecture: architecture().to_owned(),
        ..NodeSystemInfo::default()
    }
}

/// Publishes the status of the node on change and at least every few minutes, for ever.
pub(crate) async fn sync_node_status(node: &Node, port: u16) {
    let nodes: Api<NodeObject> = Api::all(node.client.0.clone());
    let mut written = tokio::time::Instant::now();
    loop {
        sleep(STATUS).await;
        let existing = match nodes.get_opt(&node.settings.name).await {
            Ok(Some(existing)) => existing,
            Ok(None) => {
                if register(node, port).await.is_err() {
                    tracing::error!("another process of this machine is this node now");
                }
                continue;
            }
            Err(error) => {
                tracing::warn!(%error, "cannot read the node");
                continue;
            }
        };
        let wanted = status(node, port, &existing, true);
        let is_same = existing.status.as_ref().is_some_and(|known| is_same(known, &wanted));
        if is_same && written.elapsed() < STATUS_UNCHANGED {
            continue;
        }
        match write_status(&nodes, &node.settings.name, &wanted).await {
            Ok(()) => written = tokio::time::Instant::now(),
            Err(error) => tracing::warn!(%error, "cannot write the status of the node"),
        }
    }
}

async fn write_status(nodes: &Api<NodeObject>, name: &str, status: &NodeStatus) -> orlop_client::Result<()> {
    let patch = Patch::Strategic(json!({"status": status}));
    nodes.patch_status(name, &PatchParams::default(), &patch).await.map(drop)
}

fn is_same(known: &NodeStatus, wanted: &NodeStatus) -> bool {
    let verdicts = |status: &NodeStatus| -> Vec<(String, String)> {
        let conditions = status.conditions.iter().flatten();
        conditions.map(|condition| (condition.type_.clone(), condition.status.clone())).collect()
    };
    known.capacity == wanted.capacity
        && known.allocatable == wanted.allocatable
        && known.addresses == wanted.addresses
        && known.daemon_endpoints == wanted.daemon_endpoints
        // An empty list is not stored.
        && known.images.as_deref().unwrap_or_default() == wanted.images.as_deref().unwrap_or_default()
        && verdicts(wanted).iter().all(|verdict| verdicts(known).contains(verdict))
}

/// Marks the node as not ready, since it stops.
pub(crate) async fn stopping(node: &Node, port: u16) {
    let nodes: Api<NodeObject> = Api::all(node.client.0.clone());
    if let Ok(Some(existing)) = nodes.get_opt(&node.settings.name).await {
        let status = status(node, port, &existing, false);
        let _ = write_status(&nodes, &node.settings.name, &status).await;
    }
}

/// Tells that the node has started.
pub(crate) fn announce(node: &Node, object: &NodeObject) {
    let name = &node.settings.name;
    node.events.node(object, Severity::Normal, "Starting", "Starting kubelet.");
    node.events.node(object, Severity::Normal, "NodeReady", format!("Node {name} status is now: NodeReady"));
}

/// Renews the node's lease for ever.
pub(crate) async fn renew_lease(client: Client, node: NodeObject) {
    let name = node.metadata.name.clone().unwrap_or_default();
    let leases: Api<Lease> = Api::namespaced(client, LEASE_NAMESPACE);
    let owner = OwnerReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        name: name.clone(),
        uid: node.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    };
    loop {
        if let Err(error) = renew(&leases, &name, &owner).await {
            tracing::warn!(%error, "cannot renew the node's lease");
        }
        sleep(RENEW).await;
    }
}

async fn renew(leases: &Api<Lease>, name: &str, owner: &OwnerReference) -> orlop_client::Result<()> {
    let now = MicroTime(Timestamp::now());
    let patch = Patch::Merge(
        json!({"spec": {"renewTime": now, "holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS}}),
    );
    match leases.patch(name, &PatchParams::default(), &patch).await {
        Err(orlop_client::Error::Api(refusal)) if refusal.code == 404 => {
            let lease = Lease {
                metadata: ObjectMeta {
                    name: Some(name.to_owned()),
                    owner_references: Some(vec![owner.clone()]),
                    ..ObjectMeta::default()
                },
                spec: Some(LeaseSpec {
                    holder_identity: Some(name.to_owned()),
                    lease_duration_seconds: Some(LEASE_SECONDS),
                    renew_time: Some(now),
                    ..LeaseSpec::default()
                }),
            };
            leases.create(&PostParams::default(), &lease).await.map(drop)
        }
        renewed => renewed.map(drop),
    }
}

/// Raises the number of files that this process may open: each container needs one.
pub(crate) fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use serde_json::Value;

    use super::*;

    /// Removes what API servers leave out: zeros and empty lists.
    fn stored(status: &NodeStatus) -> NodeStatus {
        fn remove_empty(value: &mut Value) {
            match value {
                Value::Object(fields) => {
                    fields.values_mut().for_each(remove_empty);
                    fields.retain(|_, field| *field != json!(0) && *field != json!([]));
                }
                Value::Array(items) => items.iter_mut().for_each(remove_empty),
                _ => {}
            }
        }
        let mut value = serde_json::to_value(status).unwrap();
        remove_empty(&mut value);
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn stored_status_is_not_written_again() {
        for names in [vec![], vec!["web".to_owned()]] {
            let status = |verdict: bool| NodeStatus {
                conditions: Some(conditions(&NodeStatus::default(), verdict)),
                images: Some(images(names.clone())),
                ..NodeStatus::default()
            };
            assert!(is_same(&stored(&status(true)), &status(true)));
            assert!(!is_same(&stored(&status(true)), &status(false)));
        }
    }
}
