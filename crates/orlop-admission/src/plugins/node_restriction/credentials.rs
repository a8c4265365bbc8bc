//! Credentials that a node asks for: its own certificates, and tokens and certificates for its pods.

use orlop_api::status::Status;
use orlop_auth::node::references::is_mirror;
use orlop_kinds::accessors::{list, present, text, texts};
use serde_json::Value;

use super::{NodeRestriction, Write};
use crate::{
    Operation,
    listers::{NODES, PERSISTENT_VOLUME_CLAIMS, PODS, Resource, SERVICE_ACCOUNTS},
    plugins::{authorization::Permission, certificates::parse_request},
};

const PERSISTENT_VOLUMES: Resource<'_> = Resource::new("", "v1", "persistentvolumes");
const CSI_DRIVERS: Resource<'_> = Resource::new("storage.k8s.io", "v1", "csidrivers");

impl NodeRestriction {
    pub(super) async fn check_token(&self, write: &Write<'_>) -> Result<(), Status> {
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

    pub(super) async fn check_pod_certificate(&self, write: &Write<'_>) -> Result<(), Status> {
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

    pub(super) fn check_certificate_request(write: &Write<'_>) -> Result<(), Status> {
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
