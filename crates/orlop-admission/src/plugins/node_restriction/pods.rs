//! Pods of a node, and the status of their claims.

use orlop_api::{group_version::GroupResource, status::Status};
use orlop_auth::node::references::{Target, is_mirror, named_by};
use orlop_kinds::accessors::{flag, list, map, present, text};
use serde_json::Value;

use super::{NodeRestriction, Write};
use crate::{Operation, listers::NODES};

pub(super) const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

impl NodeRestriction {
    pub(super) async fn check_pod(&self, write: &Write<'_>) -> Result<(), Status> {
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

    pub(super) fn check_pod_status(write: &Write<'_>) -> Result<(), Status> {
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

    pub(super) async fn check_eviction(&self, write: &Write<'_>) -> Result<(), Status> {
        let request = write.request;
        if request.operation != Operation::Create {
            return Err(write.forbid(format!("unexpected operation {}", request.operation.name())));
        }
        let pod = self.pod(request.namespace(), &request.name).await?;
        write.require(text(&pod, "/spec/nodeName") == write.node, || {
            format!("node {} can only evict pods with spec.nodeName set to itself", write.node)
        })
    }

    pub(super) fn check_claim_status(write: &Write<'_>) -> Result<(), Status> {
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
}

fn not_owned(node: &str) -> String {
    format!("node {node:?} can only create pods with an owner reference set to itself")
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
