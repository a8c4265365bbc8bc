//! Approval of kubelets' CertificateSigningRequests for client certificates, if whoever asks may have them: a node that
//! joins with a bootstrap token, or one that renews its own certificate.

use std::sync::Arc;

use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
    certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition},
};
use orlop_client::{Api, Client, api::PostParams};

use crate::{
    certificate_requests,
    runtime::{Context, Manager},
};

/// Name of the controller.
pub const NAME: &str = "certificatesigningrequest-approving-controller";

/// Returns the common name of a request if it is one of a kubelet for a client certificate. The arguments are the signer's
/// name, the request in PEM and the usages.
pub type RecognizeKubelet = Arc<dyn Fn(&str, &[u8], &[String]) -> Option<String> + Send + Sync>;

/// Registers the controller.
pub fn register(manager: &mut Manager, recognize: RecognizeKubelet) {
    manager.register(NAME, move |context| run(context, recognize.clone()));
}

async fn run(context: Context, recognize: RecognizeKubelet) {
    let reconcile = |client: Client, name: String| reconcile(client, name, recognize.clone());
    certificate_requests::run(context, is_open, reconcile).await;
}

/// Returns true for a request that nobody has decided on.
fn is_open(request: &CertificateSigningRequest) -> bool {
    let Some(status) = &request.status else { return true };
    let conditions = status.conditions.as_deref().unwrap_or_default();
    status.certificate.as_ref().is_none_or(|certificate| certificate.0.is_empty())
        && !conditions.iter().any(|condition| matches!(condition.type_.as_str(), "Approved" | "Denied"))
}

/// A permission that suffices, and the message of the approval.
type Permission = (&'static str, &'static str);

/// Returns the permissions of which one suffices, for a kubelet of this name.
fn permissions(request: &CertificateSigningRequest, common_name: &str) -> Vec<Permission> {
    let own = ("selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview.");
    let any = ("nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview.");
    let is_own = request.spec.username.as_deref() == Some(common_name);
    is_own.then_some(own).into_iter().chain([any]).collect()
}

async fn reconcile(client: Client, name: String, recognize: RecognizeKubelet) -> orlop_client::Result<()> {
    let requests = Api::<CertificateSigningRequest>::all(client.clone());
    let Some(mut request) = requests.get_opt(&name).await?.filter(is_open) else { return Ok(()) };
    let spec = &request.spec;
    let usages = spec.usages.clone().unwrap_or_default();
    let Some(common_name) = recognize(&spec.signer_name, &spec.request.0, &usages) else { return Ok(()) };
    for (subresource, message) in permissions(&request, &common_name) {
        if !is_allowed(&client, &request, subresource).await? {
            continue;
        }
        let condition = CertificateSigningRequestCondition {
            type_: "Approved".to_owned(),
            status: "True".to_owned(),
            reason: Some("AutoApproved".to_owned()),
            message: Some(message.to_owned()),
            ..CertificateSigningRequestCondition::default()
        };
        request.status.get_or_insert_default().conditions.get_or_insert_default().push(condition);
        return requests
            .replace_subresource("approval", &name, &PostParams::default(), &request)
            .await
            .map(drop);
    }
    tracing::info!(name, "a kubelet's certificate request is left to an administrator");
    Ok(())
}

/// Returns true if whoever asked may have a certificate for a kubelet.
async fn is_allowed(
    client: &Client,
    request: &CertificateSigningRequest,
    subresource: &str,
) -> orlop_client::Result<bool> {
    let spec = &request.spec;
    let attributes = ResourceAttributes {
        group: Some("certificates.k8s.io".to_owned()),
        resource: Some("certificatesigningrequests".to_owned()),
        subresource: Some(subresource.to_owned()),
        verb: Some("create".to_owned()),
        version: Some("*".to_owned()),
        ..ResourceAttributes::default()
    };
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: spec.username.clone(),
            uid: spec.uid.clone(),
            groups: spec.groups.clone(),
            extra: spec.extra.clone(),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let answered = Api::all(client.clone()).create(&PostParams::default(), &review).await?;
    Ok(answered.status.is_some_and(|status| status.allowed))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use serde_json::json;

    use super::*;

    fn request(username: &str, conditions: &[&str]) -> CertificateSigningRequest {
        let conditions: Vec<_> =
            conditions.iter().map(|kind| json!({"type": kind, "status": "True"})).collect();
        serde_json::from_value(json!({
            "metadata": {"name": "a"},
            "spec": {"request": "eA==", "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
                "username": username},
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    #[test]
    fn open_requests_need_one_of_the_permissions() {
        assert!(is_open(&request("a", &[])));
        assert!(!is_open(&request("a", &["Approved"])) && !is_open(&request("a", &["Denied"])));
        let needed = |username: &str| {
            let needed = permissions(&request(username, &[]), "system:node:one");
            needed.into_iter().map(|(subresource, _)| subresource).collect::<Vec<_>>()
        };
        assert_eq!(needed("system:node:one"), ["selfnodeclient", "nodeclient"]);
        assert_eq!(needed("system:bootstrap:abcdef"), ["nodeclient"]);
    }
}
