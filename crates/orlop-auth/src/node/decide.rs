//! The rules by which a node's request is decided.

use std::borrow::Cow;

use orlop_api::user::UserInfo;

use super::references::Target;
use crate::{
    rbac::{PolicyRule, bootstrap},
    request::{Attributes, Verb},
};

const USER_PREFIX: &str = "system:node:";
const GROUP: &str = "system:nodes";
/// Namespace of the nodes' own leases.
const NODE_LEASES: &str = "kube-node-lease";

/// Returns the name of the node that a user is; `None` if it is not one.
pub fn node_name(user: &UserInfo) -> Option<&str> {
    user.name.strip_prefix(USER_PREFIX).filter(|_| user.is_in_group(GROUP))
}

/// A ruling on a node's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// The request is allowed.
    Allow,
    /// The request is not allowed, for a reason.
    NoOpinion(Cow<'static, str>),
    /// The request is allowed if its object is in use on the node.
    IfUsed(Target),
    /// The request is allowed if its persistent volume is in use on the node.
    IfVolumeUsed,
}

impl Ruling {
    fn refuse(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::NoOpinion(reason.into())
    }

    fn allow_if(allowed: bool, reason: &'static str) -> Self {
        if allowed { Self::Allow } else { Self::refuse(reason) }
    }
}

/// Rules for what all nodes may do alike: those of the role `system:node`.
#[derive(Debug)]
pub struct NodeRules(Vec<PolicyRule>);

impl Default for NodeRules {
    fn default() -> Self {
        let role = bootstrap::roles().into_iter().find(|role| role["metadata"]["name"] == "system:node");
        Self(role.map(|role| PolicyRule::all_of(&role)).unwrap_or_default())
    }
}

impl NodeRules {
    /// Rules on a request of a node.
    pub fn decide(&self, node: &str, attributes: &Attributes) -> Ruling {
        let target = (attributes.group.as_str(), attributes.resource.as_str());
        if attributes.is_resource_request {
            match target {
                ("", "secrets") => return read_namespaced(Target::Secret, attributes),
                ("", "configmaps") => return read_namespaced(Target::ConfigMap, attributes),
                ("", "persistentvolumeclaims") => return claim(attributes),
                ("", "persistentvolumes") => return get(Ruling::IfVolumeUsed, attributes),
                ("resource.k8s.io", "resourceclaims") => {
                    return get(Ruling::IfUsed(Target::ResourceClaim), attributes);
                }
                ("storage.k8s.io", "volumeattachments") => {
                    return get(Ruling::IfUsed(Target::VolumeAttachment), attributes);
                }
                ("", "serviceaccounts") => return service_account(attributes),
                ("coordination.k8s.io", "leases") => return lease(node, attributes),
                ("storage.k8s.io", "csinodes") => return csi_node(node, attributes),
                ("resource.k8s.io", "resourceslices") => return resource_slice(node, attributes),
                ("", "nodes") => return own_node(node, attributes),
                ("", "pods") => return pod(node, attributes),
                ("certificates.k8s.io", "podcertificaterequests") => {
                    return certificate_request(node, attributes);
                }
                _ => {}
            }
        }
        Ruling::allow_if(self.0.iter().any(|rule| rule.allows(attributes)), "")
    }
}

/// Requires the name of an object that must be in use.
fn named(ruling: Ruling, attributes: &Attributes) -> Ruling {
    if attributes.object_name().is_empty() { Ruling::refuse("No Object name found") } else { ruling }
}

fn get(ruling: Ruling, attributes: &Attributes) -> Ruling {
    if attributes.verb != Verb::Get {
        return Ruling::refuse("can only get individual resources of this type");
    }
    if attributes.subresource.is_some() {
        return Ruling::refuse("cannot get subresource");
    }
    named(ruling, attributes)
}

fn read_namespaced(target: Target, attributes: &Attributes) -> Ruling {
    if !matches!(attributes.verb, Verb::Get | Verb::List | Verb::Watch) {
        return Ruling::refuse("can only read resources of this type");
    }
    if attributes.subresource.is_some() {
        return Ruling::refuse("cannot read subresource");
    }
    if attributes.namespace.is_empty() {
        return Ruling::refuse("can only read namespaced object of this type");
    }
    named(Ruling::IfUsed(target), attributes)
}

fn claim(attributes: &Attributes) -> Ruling {
    let ruling = Ruling::IfUsed(Target::PersistentVolumeClaim);
    match (attributes.subresource_name(), &attributes.verb) {
        ("status", Verb::Update | Verb::Patch) => named(ruling, attributes),
        ("status", _) => Ruling::refuse("can only get/update/patch this type"),
        _ => get(ruling, attributes),
    }
}

fn service_account(attributes: &Attributes) -> Ruling {
    match (&attributes.verb, attributes.subresource_name()) {
        (Verb::Get, "") => read_namespaced(Target::ServiceAccount, attributes),
        (Verb::Create, _) if attributes.name.is_empty() => {
            Ruling::refuse("can only create tokens for individual service accounts")
        }
        (Verb::Create, "token") => Ruling::IfUsed(Target::ServiceAccount),
        (Verb::Create, _) => Ruling::refuse("can only create token subresource of serviceaccount"),
        _ => Ruling::refuse("can only create tokens for individual service accounts"),
    }
}

fn lease(node: &str, attributes: &Attributes) -> Ruling {
    if !matches!(attributes.verb, Verb::Get | Verb::Create | Verb::Update | Verb::Patch | Verb::Delete) {
        return Ruling::refuse("can only get, create, update, patch, or delete a node lease");
    }
    if attributes.namespace != NODE_LEASES {
        return Ruling::refuse(format!("can only access leases in the {NODE_LEASES:?} system namespace"));
    }
    // The name of a new lease is not known yet: admission checks it.
    Ruling::allow_if(
        attributes.verb == Verb::Create || attributes.name == node,
        "can only access node lease with the same name as the requesting node",
    )
}

fn csi_node(node: &str, attributes: &Attributes) -> Ruling {
    match attributes.subresource_name() {
        "" => {}
        "status" => return Ruling::refuse("CSINode status access requires CSIVolumeHealth feature"),
        _ => return Ruling::refuse("cannot authorize CSINode subresources"),
    }
    if !matches!(attributes.verb, Verb::Get | Verb::Create | Verb::Update | Verb::Patch | Verb::Delete) {
        return Ruling::refuse("can only get, create, update, patch, or delete a CSINode");
    }
    Ruling::allow_if(
        attributes.verb == Verb::Create || attributes.name == node,
        "can only access CSINode with the same name as the requesting node",
    )
}

fn resource_slice(node: &str, attributes: &Attributes) -> Ruling {
    if attributes.subresource.is_some() {
        return Ruling::refuse("cannot authorize ResourceSlice subresources");
    }
    match attributes.verb {
        // Admission checks the node of a new slice.
        Verb::Create => Ruling::Allow,
        Verb::Get | Verb::Update | Verb::Patch | Verb::Delete => {
            named(Ruling::IfUsed(Target::ResourceSlice), attributes)
        }
        Verb::List | Verb::Watch | Verb::DeleteCollection => Ruling::allow_if(
            selects_node(attributes, "spec.nodeName", node),
            "can only list/watch/deletecollection resourceslices with nodeName field selector",
        ),
        _ => Ruling::refuse(
            "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, \
             delete, deletecollection",
        ),
    }
}

fn certificate_request(node: &str, attributes: &Attributes) -> Ruling {
    if attributes.subresource.is_some() {
        return Ruling::refuse("nodes may not access the status subresource of PodCertificateRequests");
    }
    match &attributes.verb {
        Verb::Create => Ruling::Allow,
        Verb::Get => named(Ruling::IfUsed(Target::PodCertificateRequest), attributes),
        Verb::List | Verb::Watch => Ruling::allow_if(
            selects_node(attributes, "spec.nodeName", node),
            "can only list/watch podcertificaterequests with nodeName field selector",
        ),
        verb => Ruling::refuse(format!("nodes may not {verb} podcertificaterequests")),
    }
}

fn own_node(node: &str, attributes: &Attributes) -> Ruling {
    match (attributes.subresource_name(), &attributes.verb) {
        // Admission limits a node to its own object.
        ("", Verb::Create | Verb::Update | Verb::Patch) | ("status", Verb::Update | Verb::Patch) => {
            Ruling::Allow
        }
        ("", Verb::Get | Verb::List | Verb::Watch) => match attributes.object_name() {
            name if name == node => Ruling::Allow,
            "" => Ruling::refuse(format!("node '{node}' cannot read all nodes, only its own Node object")),
            name => Ruling::refuse(format!("node '{node}' cannot read '{name}', only its own Node object")),
        },
        _ => Ruling::refuse(""),
    }
}

fn pod(node: &str, attributes: &Attributes) -> Ruling {
    let used = Ruling::IfUsed(Target::Pod);
    match (attributes.subresource_name(), &attributes.verb) {
        ("", Verb::Get) => get(used, attributes),
        ("", Verb::List | Verb::Watch) if selects_node(attributes, "spec.nodeName", node) => Ruling::Allow,
        ("", Verb::List | Verb::Watch) if !attributes.object_name().is_empty() => used,
        ("", Verb::List | Verb::Watch) => {
            Ruling::refuse("can only list/watch pods with spec.nodeName field selector")
        }
        // Mirror pods, status and evictions: admission limits a node to its own pods.
        ("", Verb::Create | Verb::Delete)
        | ("status", Verb::Update | Verb::Patch)
        | ("eviction", Verb::Create) => Ruling::Allow,
        _ => Ruling::refuse(""),
    }
}

fn selects_node(attributes: &Attributes, field: &str, node: &str) -> bool {
    let selectors = attributes.selectors.as_ref();
    let mut terms = selectors.into_iter().flat_map(|selectors| &selectors.fields);
    terms.any(|term| term.equal && term.field == field && term.value == node)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use orlop_api::query::Query;

    use super::*;

    fn ruling(method: &str, uri: &str) -> Ruling {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let attributes = Attributes::of(&method.parse().unwrap(), path, &Query::parse(query));
        NodeRules::default().decide("one", &attributes)
    }

    #[test]
    fn only_members_of_system_nodes_are_nodes() {
        let user = |name: &str, group: &str| UserInfo::authenticated(name, [group.to_owned()]);
        assert_eq!(node_name(&user("system:node:one", "system:nodes")), Some("one"));
        assert_eq!(node_name(&user("system:node:", "system:nodes")), Some(""));
        assert_eq!(node_name(&user("system:node:one", "dev")), None);
        assert_eq!(node_name(&user("one", "system:nodes")), None);
    }

    #[test]
    fn node_reads_and_writes_only_its_own() {
        let refused = |reason: &'static str| Ruling::NoOpinion(reason.into());
        let secrets = "/api/v1/namespaces/n/secrets";
        for (method, uri, expected) in [
            ("GET", format!("{secrets}/s"), Ruling::IfUsed(Target::Secret)),
            (
                "GET",
                format!("{secrets}?watch=1&fieldSelector=metadata.name%3Ds"),
                Ruling::IfUsed(Target::Secret),
            ),
            ("GET", secrets.to_owned(), refused("No Object name found")),
            ("GET", "/api/v1/secrets".to_owned(), refused("can only read namespaced object of this type")),
            ("DELETE", format!("{secrets}/s"), refused("can only read resources of this type")),
            ("GET", "/api/v1/persistentvolumes/v".to_owned(), Ruling::IfVolumeUsed),
            (
                "PATCH",
                "/api/v1/namespaces/n/persistentvolumeclaims/c/status".to_owned(),
                Ruling::IfUsed(Target::PersistentVolumeClaim),
            ),
            (
                "POST",
                "/api/v1/namespaces/n/serviceaccounts/a/token".to_owned(),
                Ruling::IfUsed(Target::ServiceAccount),
            ),
            (
                "POST",
                "/api/v1/namespaces/n/serviceaccounts".to_owned(),
                refused("can only create tokens for individual service accounts"),
            ),
            ("GET", "/api/v1/nodes/one".to_owned(), Ruling::Allow),
            ("GET", "/api/v1/nodes?fieldSelector=metadata.name%3Done&watch=true".to_owned(), Ruling::Allow),
            (
                "GET",
                "/api/v1/nodes/two".to_owned(),
                refused("node 'one' cannot read 'two', only its own Node object"),
            ),
            (
                "GET",
                "/api/v1/nodes".to_owned(),
                refused("node 'one' cannot read all nodes, only its own Node object"),
            ),
            ("PATCH", "/api/v1/nodes/one/status".to_owned(), Ruling::Allow),
            ("DELETE", "/api/v1/nodes/one".to_owned(), refused("")),
            ("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Done".to_owned(), Ruling::Allow),
            (
                "GET",
                "/api/v1/pods?fieldSelector=spec.nodeName!%3Done".to_owned(),
                refused("can only list/watch pods with spec.nodeName field selector"),
            ),
            (
                "GET",
                "/api/v1/pods".to_owned(),
                refused("can only list/watch pods with spec.nodeName field selector"),
            ),
            (
                "PUT",
                "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/one".to_owned(),
                Ruling::Allow,
            ),
            (
                "PUT",
                "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/two".to_owned(),
                refused("can only access node lease with the same name as the requesting node"),
            ),
            (
                "PUT",
                "/apis/coordination.k8s.io/v1/namespaces/n/leases/one".to_owned(),
                refused("can only access leases in the \"kube-node-lease\" system namespace"),
            ),
            ("GET", "/api/v1/services".to_owned(), Ruling::Allow),
            ("POST", "/api/v1/namespaces/n/events".to_owned(), Ruling::Allow),
            ("GET", "/apis/apps/v1/deployments".to_owned(), refused("")),
        ] {
            assert_eq!(ruling(method, &uri), expected, "{method} {uri}");
        }
    }
}
