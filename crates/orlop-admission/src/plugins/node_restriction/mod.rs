//! NodeRestriction: nodes write only their own objects and those of their pods.

mod credentials;
mod node;
mod pods;

use std::sync::Arc;

use async_trait::async_trait;
use orlop_api::{group_version::GroupResource, status::Status};
use orlop_auth::{UnionAuthorizer, node::node_name};
use serde_json::Value;

use crate::{
    Admission, AdmissionRequest, Operation, Phase, Resources,
    listers::{Listers, PODS},
};

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

    use super::{node::NODE_LEASES, pods::MIRROR_ANNOTATION, *};
    use crate::listers::NODES;
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
