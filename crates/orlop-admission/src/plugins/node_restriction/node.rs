//! The Node of a node, and the objects of the same name.

use std::collections::BTreeSet;

use orlop_api::status::Status;
use orlop_kinds::accessors::{list, map, present, text};
use serde_json::{Map, Value};

use super::{NodeRestriction, Write};
use crate::Operation;

pub(super) const NODE_LEASES: &str = "kube-node-lease";
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

impl NodeRestriction {
    pub(super) fn check_node(write: &Write<'_>) -> Result<(), Status> {
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

    pub(super) fn check_lease(write: &Write<'_>) -> Result<(), Status> {
        write.require(write.request.namespace() == NODE_LEASES, || {
            format!("can only access leases in the {NODE_LEASES:?} system namespace")
        })?;
        write.require(own_name(write) == write.node, || {
            "can only access node lease with the same name as the requesting node".to_owned()
        })
    }

    pub(super) fn check_csi_node(write: &Write<'_>) -> Result<(), Status> {
        write.require(own_name(write) == write.node, || {
            "can only access CSINode with the same name as the requesting node".to_owned()
        })
    }

    pub(super) fn check_resource_slice(write: &Write<'_>) -> Result<(), Status> {
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
}

/// Returns the name of a new object, or of the one in the path.
fn own_name<'a>(write: &'a Write<'_>) -> &'a str {
    match write.request.operation {
        Operation::Create => text(write.object, "/metadata/name"),
        _ => &write.request.name,
    }
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
