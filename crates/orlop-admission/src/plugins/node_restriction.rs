//! NodeRestriction: nodes write only their own objects and those of their pods.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use orlop_api::{group_version::GroupResource, status::Status};
use orlop_auth::{
    UnionAuthorizer,
    node::{
        node_name,
        references::{Target, is_mirror, named_by},
    },
};
use orlop_kinds::accessors::{flag, list, map, present, text, texts};
use serde_json::{Map, Value};

use super::{authorization::Permission, certificates::parse_request};
use crate::{
    Admission, AdmissionRequest, Operation, Phase, Resources,
    listers::{Listers, NODES, PERSISTENT_VOLUME_CLAIMS, PODS, Resource, SERVICE_ACCOUNTS},
};

const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
const NODE_LEASES: &str = "kube-node-lease";
const PERSISTENT_VOLUMES: Resource<'_> = Resource::new("", "v1", "persistentvolumes");
const CSI_DRIVERS: Resource<'_> = Resource::new("storage.k8s.io", "v1", "csidrivers");
/// Labels under Kubernetes' domains that a kubelet may set.
const KUBELET_LABELS: &[&str] = &[
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];
const KUBELET_DOMAINS: &[&str] = &["kubelet.kubernetes.io", "node.kubernetes.io"];
const RESTRICTED_DOMAIN: &str = "node-restriction.kubernetes.io";

/// Limits nodes.
#[derive(Debug)]
pub(super) struct NodeRestriction {
    listers: Arc<dyn Listers>,
    authorizer: UnionAuthorizer,
}

/// A write of a node.
struct Write<'a> {
    request: &'a AdmissionRequest<'a>,
    node: &'a str,
    /// The new object; null on delete.
    object: &'a Value,
    /// The old object; null on create.
    old: &'a Value,
}

impl Write<'_> {
    fn forbid(&self, why: impl AsRef<str>) -> Status {
        self.request.forbidden(if self.object.is_null() { self.old } else { self.object }, why)
    }

    fn require(&self, holds: bool, why: impl FnOnce() -> String) -> Result<(), Status> {
        if holds { Ok(()) } else { Err(self.forbid(why())) }
    }
}

impl NodeRestriction {
    pub(super) fn new(listers: Arc<dyn Listers>, authorizer: UnionAuthorizer) -> Self {
        Self { listers, authorizer }
    }

    async fn pod(&self, namespace: &str, name: &str) -> Result<Arc<Value>, Status> {
        let found = self.listers.get(PODS, namespace, name).await?;
        found.ok_or_else(|| Status::not_found(&GroupResource::new("", "pods"), name))
    }

    async fn check_pod(&self, write: &Write<'_>) -> Result<(), Status> {
        let node = write.node;
        match write.request.operation {
            Operation::Create => self.check_mirror_pod(write).await,
            Operation::Delete => write.require(text(write.old, "/spec/nodeName") == node, || {
                format!("node {node:?} can only delete pods with spec.nodeName set to itself")
            }),
            operation => Err(write.forbid(format!(
                "unexpected operation {:?}, node {node:?} can only create and delete mirror pods",
                operation.name()
            ))),
        }
    }

    async fn check_mirror_pod(&self, write: &Write<'_>) -> Result<(), Status> {
        let (pod, node) = (write.object, write.node);
        write.require(is_mirror(pod), || {
            format!("pod does not have {MIRROR_ANNOTATION:?} annotation, node {node:?} can only create mirror pods")
        })?;
        write.require(text(pod, "/spec/nodeName") == node, || {
            format!("node {node:?} can only create pods with spec.nodeName set to itself")
        })?;
        let owner = match list(pod, "/metadata/ownerReferences") {
            [owner] => owner,
            [] => return Err(write.forbid(not_owned(node))),
            _ => {
                return Err(write.forbid(format!(
                    "node {node:?} can only create pods with a single owner reference set to itself"
                )));
            }
        };
        let is_own = text(owner, "/apiVersion") == "v1"
            && text(owner, "/kind") == "Node"
            && text(owner, "/name") == node;
        write.require(is_own, || not_owned(node))?;
        write.require(flag(owner, "/controller"), || {
            format!("node {node:?} can only create pods with a controller owner reference set to itself")
        })?;
        write.require(!flag(owner, "/blockOwnerDeletion"), || {
            format!("node {node:?} must not set blockOwnerDeletion on an owner reference")
        })?;
        let found = self.listers.get(NODES, "", node).await?;
        let found = found.ok_or_else(|| Status::not_found(&GroupResource::new("", "nodes"), node))?;
        let (expected, uid) = (text(owner, "/uid"), text(&found, "/metadata/uid"));
        write.require(expected == uid, || {
            format!("node {node} UID mismatch: expected {expected} got {uid}")
        })?;
        match referenced(pod) {
            Some(resource) => {
                Err(write.forbid(format!("node {node:?} can not create pods that reference {resource}")))
            }
            None => Ok(()),
        }
    }

    fn check_pod_status(write: &Write<'_>) -> Result<(), Status> {
        let (pod, old, node) = (write.object, write.old, write.node);
        if write.request.operation != Operation::Update {
            return Err(write.forbid(format!("unexpected operation {:?}", write.request.operation.name())));
        }
        write.require(text(old, "/spec/nodeName") == node, || {
            format!("node {node:?} can only update pod status for pods with spec.nodeName set to itself")
        })?;
        let is_same = |pointer: &str| present(pod, pointer) == present(old, pointer);
        write.require(map(pod, "/metadata/labels") == map(old, "/metadata/labels"), || {
            format!("node {node:?} cannot update labels through pod status")
        })?;
        write.require(is_same("/status/resourceClaimStatuses"), || {
            format!("node {node:?} cannot update resource claim statues")
        })?;
        write.require(is_same("/status/extendedResourceClaimStatus"), || {
            format!("node {node:?} cannot update extended resource claim status")
        })?;
        write.require(is_same("/status/nodeAllocatableResourceClaimStatuses"), || {
            format!("node {node:?} cannot update node allocatable resource claim statuses")
        })
    }

    async fn check_eviction(&self, write: &Write<'_>) -> Result<(), Status> {
        let request = write.request;
        if request.operation != Operation::Create {
            return Err(write.forbid(format!("unexpected operation {}", request.operation.name())));
        }
        let pod = self.pod(request.namespace(), &request.name).await?;
        write.require(text(&pod, "/spec/nodeName") == write.node, || {
            format!("node {} can only evict pods with spec.nodeName set to itself", write.node)
        })
    }

    fn check_node(write: &Write<'_>) -> Result<(), Status> {
        let (object, old, node) = (write.object, write.old, write.node);
        let requested = &*write.request.name;
        write.require(requested == node, || {
            format!("node {node:?} is not allowed to modify node {requested:?}")
        })?;
        let source = present(object, "/spec/configSource");
        let changed = changed_labels(map(object, "/metadata/labels"), map(old, "/metadata/labels"));
        let forbidden: Vec<&str> = changed.into_iter().filter(|label| is_forbidden_label(label)).collect();
        match write.request.operation {
            Operation::Create => {
                write.require(source.is_none(), || {
                    format!("node {node:?} is not allowed to create pods with a non-nil configSource")
                })?;
                write.require(forbidden.is_empty(), || {
                    let labels = forbidden.join(", ");
                    format!("node {node:?} is not allowed to set the following labels: {labels}")
                })
            }
            Operation::Update => {
                write.require(source.is_none() || source == present(old, "/spec/configSource"), || {
                    format!(
                        "node {node:?} is not allowed to update configSource to a new non-nil configSource"
                    )
                })?;
                write.require(list(object, "/spec/taints") == list(old, "/spec/taints"), || {
                    format!("node {node:?} is not allowed to modify taints")
                })?;
                let owners = |node| list(node, "/metadata/ownerReferences");
                write.require(owners(object) == owners(old), || {
                    format!("node {node:?} is not allowed to modify ownerReferences")
                })?;
                write.require(forbidden.is_empty(), || {
                    format!("is not allowed to modify labels: {}", forbidden.join(", "))
                })
            }
            _ => Ok(()),
        }
    }

    fn check_claim_status(write: &Write<'_>) -> Result<(), Status> {
        if write.request.subresource() != "status" {
            return Err(write.forbid("may only update PVC status"));
        }
        if write.request.operation != Operation::Update {
            return Err(write.forbid(format!("unexpected operation {:?}", write.request.operation.name())));
        }
        let rest = |claim: &Value| {
            let mut claim = claim.clone();
            for (part, fields) in [
                ("metadata", &["resourceVersion", "managedFields"][..]),
                ("status", &["capacity", "conditions", "allocatedResourceStatuses", "allocatedResources"]),
            ] {
                if let Some(part) = claim.get_mut(part).and_then(Value::as_object_mut) {
                    fields.iter().for_each(|field| {
                        part.remove(*field);
                    });
                }
            }
            claim
        };
        write.require(rest(write.object) == rest(write.old), || {
            format!(
                "node {:?} is not allowed to update fields other than status.quantity and status.conditions",
                write.node
            )
        })
    }

    async fn check_token(&self, write: &Write<'_>) -> Result<(), Status> {
        let (request, token) = (write.request, write.object);
        if request.operation != Operation::Create || request.subresource() != "token" {
            return Ok(());
        }
        let bound = |field: &str| text(token, &format!("/spec/boundObjectRef/{field}"));
        let is_pod = bound("apiVersion") == "v1" && bound("kind") == "Pod" && !bound("name").is_empty();
        write.require(is_pod, || "node requested token not bound to a pod".to_owned())?;
        let uid = bound("uid");
        write.require(!uid.is_empty(), || {
            "node requested token with a pod binding without a uid".to_owned()
        })?;
        let pod = self.pod(request.namespace(), bound("name")).await?;
        write.require(uid == text(&pod, "/metadata/uid"), || {
            format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have \
                 been deleted and then recreated"
            )
        })?;
        write.require(text(&pod, "/spec/nodeName") == write.node, || {
            "node requested token bound to a pod scheduled on a different node".to_owned()
        })?;
        let audiences = texts(token, "/spec/audiences");
        write.require(audiences.len() < 2, || "node may only request 0 or 1 audiences".to_owned())?;
        let audience = audiences.first().copied().unwrap_or_default();
        if self.uses_audience(&pod, audience).await? {
            return Ok(());
        }
        let permission = Permission {
            verb: "request-serviceaccounts-token-audience",
            group: &request.attributes.group,
            version: &request.attributes.version,
            resource: audience,
            namespace: request.namespace(),
            name: &request.name,
            ..Permission::default()
        };
        write.require(permission.is_granted(&self.authorizer, request).await, || {
            format!(
                "{} is not authorized to request tokens for audience {audience:?}",
                request.attributes.user.name
            )
        })
    }

    /// Returns true if a pod has a volume with tokens for an audience.
    async fn uses_audience(&self, pod: &Value, audience: &str) -> Result<bool, Status> {
        let namespace = text(pod, "/metadata/namespace");
        for volume in list(pod, "/spec/volumes") {
            let mut tokens = list(volume, "/projected/sources")
                .iter()
                .filter_map(|source| source.get("serviceAccountToken"));
            if tokens.any(|token| text(token, "/audience") == audience) {
                return Ok(true);
            }
            let driver = if present(volume, "/ephemeral").is_some() {
                let claim = format!("{}-{}", text(pod, "/metadata/name"), text(volume, "/name"));
                self.driver_of_claim(namespace, &claim).await?
            } else if present(volume, "/persistentVolumeClaim").is_some() {
                self.driver_of_claim(namespace, text(volume, "/persistentVolumeClaim/claimName")).await?
            } else {
                text(volume, "/csi/driver").to_owned()
            };
            if driver.is_empty() {
                continue;
            }
            let found = self.listers.get(CSI_DRIVERS, "", &driver).await?;
            let is_for = |token: &Value| text(token, "/audience") == audience;
            if found.is_some_and(|driver| list(&driver, "/spec/tokenRequests").iter().any(is_for)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn driver_of_claim(&self, namespace: &str, claim: &str) -> Result<String, Status> {
        let Some(claim) = self.listers.get(PERSISTENT_VOLUME_CLAIMS, namespace, claim).await? else {
            return Ok(String::new());
        };
        let volume = self.listers.get(PERSISTENT_VOLUMES, "", text(&claim, "/spec/volumeName")).await?;
        Ok(volume.map(|volume| text(&volume, "/spec/csi/driver").to_owned()).unwrap_or_default())
    }

    async fn check_pod_certificate(&self, write: &Write<'_>) -> Result<(), Status> {
        let (request, object, node) = (write.request, write.object, write.node);
        if request.operation != Operation::Create {
            return Err(write.forbid(format!("unexpected operation {}", request.operation.name())));
        }
        if !request.subresource().is_empty() {
            return Err(write.forbid(format!("unexpected subresource {}", request.subresource())));
        }
        let field = |name: &str| text(object, &format!("/spec/{name}"));
        write.require(field("nodeName") == node, || {
            format!(
                "PodCertificateRequest.Spec.NodeName={:?}, which is not the requesting node {node:?}",
                field("nodeName")
            )
        })?;
        let pod_name = format!("{}/{}", request.namespace(), field("podName"));
        let missing = |what: &str| {
            Status::plain(format!("while retrieving {what} named in the PodCertificateRequest: not found"))
        };
        let found =
            self.listers.get(NODES, "", node).await?.ok_or_else(|| missing(&format!("node {node:?}")))?;
        let uid = |object: &Value| text(object, "/metadata/uid").to_owned();
        // An object may have been made anew a moment ago: that is no reason never to try again.
        if uid(&found) != field("nodeUID") {
            return Err(Status::plain(format!(
                "PodCertificateRequest for pod {pod_name:?} names node UID {:?}, inconsistent with the running node \
                 ({:?})",
                field("nodeUID"),
                uid(&found)
            )));
        }
        let pod = self.listers.get(PODS, request.namespace(), field("podName")).await?;
        let pod = pod.ok_or_else(|| missing(&format!("pod {pod_name:?}")))?;
        if uid(&pod) != field("podUID") {
            return Err(Status::plain(format!(
                "PodCertificateRequest for pod {pod_name:?} contains pod UID ({:?}) which differs from running pod {:?}",
                field("podUID"),
                uid(&pod)
            )));
        }
        write.require(text(&pod, "/spec/nodeName") == node, || {
            format!("pod {pod_name:?} is not running on node {node:?} named in the PodCertificateRequest")
        })?;
        write.require(!is_mirror(&pod), || format!("pod {pod_name:?} is a mirror pod"))?;
        let account = text(&pod, "/spec/serviceAccountName");
        write.require(field("serviceAccountName") == account, || {
            format!(
                "PodCertificateRequest for pod {pod_name:?} contains serviceAccountName ({:?}) that differs from running \
                 pod ({account:?})",
                field("serviceAccountName")
            )
        })?;
        let found = self.listers.get(SERVICE_ACCOUNTS, request.namespace(), account).await?;
        let found = found.ok_or_else(|| missing(&format!("service account {account:?}")))?;
        if uid(&found) != field("serviceAccountUID") {
            return Err(Status::plain(format!(
                "PodCertificateRequest for pod {pod_name:?} names service account UID {:?}, which differs from the \
                 running service account ({:?})",
                field("serviceAccountUID"),
                uid(&found)
            )));
        }
        let signer = field("signerName");
        let mut certificates = list(&pod, "/spec/volumes")
            .iter()
            .flat_map(|volume| list(volume, "/projected/sources"))
            .filter_map(|source| source.get("podCertificate"));
        if certificates.any(|certificate| text(certificate, "/signerName") == signer) {
            return Ok(());
        }
        let resource = signer.replace('/', ":");
        let permission = Permission {
            verb: "request-serviceaccounts-podcertificate-signer",
            group: &request.attributes.group,
            version: &request.attributes.version,
            resource: &resource,
            namespace: request.namespace(),
            name: account,
            ..Permission::default()
        };
        write.require(permission.is_granted(&self.authorizer, request).await, || {
            format!("pod {pod_name:?} does not mount a podCertificate projected volume for signer {signer:?}")
        })
    }

    fn check_lease(write: &Write<'_>) -> Result<(), Status> {
        write.require(write.request.namespace() == NODE_LEASES, || {
            format!("can only access leases in the {NODE_LEASES:?} system namespace")
        })?;
        write.require(own_name(write) == write.node, || {
            "can only access node lease with the same name as the requesting node".to_owned()
        })
    }

    fn check_csi_node(write: &Write<'_>) -> Result<(), Status> {
        write.require(own_name(write) == write.node, || {
            "can only access CSINode with the same name as the requesting node".to_owned()
        })
    }

    fn check_resource_slice(write: &Write<'_>) -> Result<(), Status> {
        let is_own = |slice: &Value| text(slice, "/spec/nodeName") == write.node;
        match write.request.operation {
            Operation::Create => write.require(is_own(write.object), || {
                "can only create ResourceSlice with the same NodeName as the requesting node".to_owned()
            }),
            Operation::Delete => write.require(is_own(write.old), || {
                "can only delete ResourceSlice with the same NodeName as the requesting node".to_owned()
            }),
            _ => Ok(()),
        }
    }

    fn check_certificate_request(write: &Write<'_>) -> Result<(), Status> {
        let signer = text(write.object, "/spec/signerName");
        let is_kubelet =
            matches!(signer, "kubernetes.io/kubelet-serving" | "kubernetes.io/kube-apiserver-client-kubelet");
        if write.request.operation != Operation::Create || !is_kubelet {
            return Ok(());
        }
        let parsed =
            parse_request(write.object).map_err(|why| write.forbid(format!("unable to parse csr: {why}")))?;
        write.require(parsed.common_name == format!("system:node:{}", write.node), || {
            format!("can only create a node CSR with CN=system:node:{}", write.node)
        })
    }
}

fn not_owned(node: &str) -> String {
    format!("node {node:?} can only create pods with an owner reference set to itself")
}

/// Returns the name of a new object, or of the one in the path.
fn own_name<'a>(write: &'a Write<'_>) -> &'a str {
    match write.request.operation {
        Operation::Create => text(write.object, "/metadata/name"),
        _ => &write.request.name,
    }
}

/// Returns the resource of an object that a mirror pod refers to.
fn referenced(pod: &Value) -> Option<&'static str> {
    let named = named_by(pod);
    let names = |target: Target| named.iter().any(|(named, _)| *named == target);
    if !text(pod, "/spec/serviceAccountName").is_empty() {
        return Some("serviceaccounts");
    }
    if names(Target::Secret) {
        return Some("secrets");
    }
    if names(Target::ConfigMap) {
        return Some("configmaps");
    }
    if !list(pod, "/spec/resourceClaims").is_empty() {
        return Some("resourceclaims");
    }
    const VOLUMES: &[(&str, &str)] = &[
        ("/configMap", "configmaps (via configmap volumes)"),
        ("/secret", "secrets (via secret volumes)"),
        ("/csi", "csidrivers (via CSI volumes)"),
        ("/glusterfs", "endpoints (via glusterFS volumes)"),
        ("/persistentVolumeClaim", "persistentvolumeclaims"),
        ("/ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
        ("/azureFile", "secrets (via azureFile volumes)"),
    ];
    const SOURCES: &[(&str, &str)] = &[
        ("/configMap", "configmaps (via projected volumes)"),
        ("/secret", "secrets (via projected volumes)"),
        ("/serviceAccountToken", "serviceaccounts (via projected volumes)"),
        ("/clusterTrustBundle", "clustertrustbundles"),
        ("/podCertificate", "podcertificates"),
    ];
    let find = |holder: &Value, kinds: &'static [(&'static str, &'static str)]| {
        kinds.iter().find(|(pointer, _)| present(holder, pointer).is_some()).map(|(_, name)| *name)
    };
    list(pod, "/spec/volumes").iter().find_map(|volume| {
        let mut sources = list(volume, "/projected/sources").iter();
        find(volume, VOLUMES).or_else(|| sources.find_map(|source| find(source, SOURCES)))
    })
}

fn changed_labels<'a>(new: &'a Map<String, Value>, old: &'a Map<String, Value>) -> BTreeSet<&'a str> {
    let keys = new.keys().chain(old.keys());
    keys.filter(|key| new.get(*key) != old.get(*key)).map(String::as_str).collect()
}

fn is_forbidden_label(label: &str) -> bool {
    let domain = label.split_once('/').map_or("", |(domain, _)| domain);
    let is_under = |parent: &str| {
        domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'))
    };
    let is_kubelet = KUBELET_LABELS.contains(&label) || KUBELET_DOMAINS.iter().any(|parent| is_under(parent));
    let is_kubernetes = is_under("kubernetes.io") || is_under("k8s.io");
    is_under(RESTRICTED_DOMAIN) || (is_kubernetes && !is_kubelet)
}

#[async_trait]
impl Admission for NodeRestriction {
    fn resources(&self) -> Resources {
        Resources::Only(&[
            ("", "pods"),
            ("", "nodes"),
            ("", "persistentvolumeclaims"),
            ("", "serviceaccounts"),
            ("coordination.k8s.io", "leases"),
            ("storage.k8s.io", "csinodes"),
            ("resource.k8s.io", "resourceslices"),
            ("certificates.k8s.io", "certificatesigningrequests"),
            ("certificates.k8s.io", "podcertificaterequests"),
        ])
    }

    fn handles(&self, phase: Phase, operation: Operation) -> bool {
        phase == Phase::Mutating && operation != Operation::Connect
    }

    fn is_idle(&self, _phase: Phase, request: &AdmissionRequest<'_>) -> bool {
        node_name(&request.attributes.user).is_none()
    }

    async fn mutate(
        &self,
        request: &AdmissionRequest<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let Some(node) = node_name(&request.attributes.user) else { return Ok(()) };
        let write = Write { request, node, object, old: old.unwrap_or(&Value::Null) };
        if node.is_empty() {
            let user = &request.attributes.user.name;
            return Err(write.forbid(format!("could not determine node from user {user:?}")));
        }
        match (request.attributes.resource.as_str(), request.subresource()) {
            ("pods", "") => self.check_pod(&write).await,
            ("pods", "status") => Self::check_pod_status(&write),
            ("pods", "eviction") => self.check_eviction(&write).await,
            ("pods", subresource) => Err(write.forbid(format!(
                "unexpected pod subresource {subresource:?}, only 'status' and 'eviction' are allowed"
            ))),
            ("nodes", _) => Self::check_node(&write),
            ("persistentvolumeclaims", _) => Self::check_claim_status(&write),
            ("serviceaccounts", _) => self.check_token(&write).await,
            ("podcertificaterequests", _) => self.check_pod_certificate(&write).await,
            ("leases", _) => Self::check_lease(&write),
            ("csinodes", _) => Self::check_csi_node(&write),
            ("resourceslices", _) => Self::check_resource_slice(&write),
            _ => Self::check_certificate_request(&write),
        }
    }
}

#[cfg(test)]
mod tests {
    use orlop_api::user::UserInfo;
    use serde_json::json;

    use super::*;
    use crate::plugins::testing::{FakeListers, Grants, Run, message};

    fn node() -> UserInfo {
        UserInfo::authenticated("system:node:n", ["system:nodes".to_owned()])
    }

    fn plugin() -> NodeRestriction {
        let objects = [
            (NODES, "", json!({"metadata": {"name": "n", "uid": "nu"}})),
            (
                PODS,
                "ns",
                json!({"metadata": {"name": "mine", "namespace": "ns", "uid": "pu"}, "spec": {"nodeName": "n"}}),
            ),
            (PODS, "ns", json!({"metadata": {"name": "other", "uid": "ou"}, "spec": {"nodeName": "m"}})),
        ];
        NodeRestriction::new(FakeListers::with(&objects), Grants::authorizer(&[]))
    }

    async fn run(run: Run, object: Value) -> String {
        let message = message(run.by(node()).mutate(&plugin(), object).await);
        message.split_once("is forbidden: ").map_or(message.clone(), |(_, why)| why.to_owned())
    }

    #[tokio::test]
    async fn others_are_not_restricted() {
        let created = Run::create("", "pods").mutate(&plugin(), json!({"metadata": {"name": "p"}})).await;
        assert_eq!(message(created), "");
    }

    #[tokio::test]
    async fn node_creates_mirror_pods_of_its_own() {
        let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "nu", "controller": true});
        let pod = json!({"metadata": {"name": "p", "annotations": {MIRROR_ANNOTATION: "x"}, "ownerReferences": [owner]},
            "spec": {"nodeName": "n"}});
        let create = |pod: Value| run(Run::create("", "pods"), pod);
        assert_eq!(create(pod.clone()).await, "");
        assert_eq!(
            create(json!({"metadata": {"name": "p"}})).await,
            "pod does not have \"kubernetes.io/config.mirror\" annotation, node \"n\" can only create mirror pods"
        );
        let mut elsewhere = pod.clone();
        elsewhere["spec"]["nodeName"] = "m".into();
        assert_eq!(
            create(elsewhere).await,
            "node \"n\" can only create pods with spec.nodeName set to itself"
        );
        let mut secret = pod.clone();
        secret["spec"]["volumes"] = json!([{"name": "v", "secret": {"secretName": "s"}}]);
        assert_eq!(create(secret).await, "node \"n\" can not create pods that reference secrets");
        let mut orphan = pod;
        orphan["metadata"]["ownerReferences"] = json!([]);
        assert_eq!(
            create(orphan).await,
            "node \"n\" can only create pods with an owner reference set to itself"
        );
    }

    #[tokio::test]
    async fn node_writes_the_status_of_its_pods() {
        let pod = |node: &str, labels: Value| json!({"metadata": {"name": "p", "labels": labels}, "spec": {"nodeName": node}});
        let update = |old: Value, new: Value| run(Run::update("", "pods", old).at("status"), new);
        assert_eq!(update(pod("n", json!({})), pod("n", json!({}))).await, "");
        assert_eq!(
            update(pod("m", json!({})), pod("m", json!({}))).await,
            "node \"n\" can only update pod status for pods with spec.nodeName set to itself"
        );
        assert_eq!(
            update(pod("n", json!({})), pod("n", json!({"a": "b"}))).await,
            "node \"n\" cannot update labels through pod status"
        );
    }

    #[tokio::test]
    async fn node_writes_its_own_node_within_limits() {
        let object = |name: &str, labels: Value, taints: Value| json!({"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}});
        let plain = || object("n", json!({}), json!([]));
        let update = |new: Value| run(Run::update("", "nodes", plain()), new);
        assert_eq!(
            update(object("n", json!({"kubernetes.io/hostname": "n", "x": "y"}), json!([]))).await,
            ""
        );
        assert_eq!(
            update(object("n", json!({"node-restriction.kubernetes.io/a": "b", "k8s.io/c": "d"}), json!([])))
                .await,
            "is not allowed to modify labels: k8s.io/c, node-restriction.kubernetes.io/a"
        );
        assert_eq!(
            update(object("n", json!({}), json!([{"key": "a"}]))).await,
            "node \"n\" is not allowed to modify taints"
        );
        assert_eq!(
            run(Run::create("", "nodes"), object("m", json!({}), json!([]))).await,
            "node \"n\" is not allowed to modify node \"m\""
        );
    }

    #[tokio::test]
    async fn node_asks_for_tokens_of_its_pods() {
        let token = |name: &str, uid: &str| {
            let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid});
            json!({"spec": {"boundObjectRef": bound, "audiences": ["elsewhere"]}})
        };
        let ask = |token: Value| run(Run::create("", "serviceaccounts").at("token"), token);
        assert_eq!(ask(json!({"spec": {}})).await, "node requested token not bound to a pod");
        assert_eq!(
            ask(token("other", "ou")).await,
            "node requested token bound to a pod scheduled on a different node"
        );
        assert!(
            ask(token("mine", "x"))
                .await
                .starts_with("the UID in the bound object reference (x) does not match")
        );
        assert_eq!(
            ask(token("mine", "pu")).await,
            "system:node:n is not authorized to request tokens for audience \"elsewhere\""
        );
    }

    #[tokio::test]
    async fn node_holds_its_own_lease() {
        let mut request = Run::create("coordination.k8s.io", "leases");
        assert!(
            run(request.clone(), json!({"metadata": {"name": "n"}}))
                .await
                .starts_with("can only access leases in")
        );
        request.attributes.namespace = NODE_LEASES.to_owned();
        assert_eq!(run(request.clone(), json!({"metadata": {"name": "n"}})).await, "");
        assert_eq!(
            run(request, json!({"metadata": {"name": "m"}})).await,
            "can only access node lease with the same name as the requesting node"
        );
    }
}
