//! Certificates for approved CertificateSigningRequests of Kubernetes' own signers.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    ByteString,
    api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition},
};
use orlop_client::{Api, Client, api::PostParams};

use crate::{
    certificate_requests,
    runtime::{Context, Manager},
};

/// Name of the controller.
pub const NAME: &str = "certificatesigningrequest-signing-controller";

/// Lifetime of certificates that do not ask for one, as kube-controller-manager has it: a year.
const LIFETIME: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Shortest lifetime that is honored.
const LIFETIME_MIN: Duration = Duration::from_secs(600);

/// A request to a signer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Name of the signer.
    pub signer: String,
    /// The request, PEM.
    pub pem: Vec<u8>,
    /// Usages of the certificate.
    pub usages: Vec<String>,
    /// Its lifetime.
    pub lifetime: Duration,
}

/// Signs a request. Returns the certificate in PEM, or the reason why it cannot be signed; `None` if the signer is
/// somebody else's.
pub type SignCertificate = Arc<dyn Fn(&Request) -> Option<Result<String, String>> + Send + Sync>;

/// Registers the controller.
pub fn register(manager: &mut Manager, sign: SignCertificate) {
    manager.register(NAME, move |context| run(context, sign.clone()));
}

async fn run(context: Context, sign: SignCertificate) {
    let reconcile = |client: Client, name: String| reconcile(client, name, sign.clone());
    certificate_requests::run(context, |request| to_sign(request).is_some(), reconcile).await;
}

/// Returns what is to be signed: of an approved request without a certificate.
fn to_sign(request: &CertificateSigningRequest) -> Option<Request> {
    let status = request.status.as_ref()?;
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let is = |kind: &str| {
        let set = |condition: &CertificateSigningRequestCondition| {
            condition.type_ == kind && condition.status == "True"
        };
        conditions.iter().any(set)
    };
    let has_certificate = status.certificate.as_ref().is_some_and(|certificate| !certificate.0.is_empty());
    if !is("Approved") || is("Denied") || is("Failed") || has_certificate {
        return None;
    }
    let seconds = request.spec.expiration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    Some(Request {
        signer: request.spec.signer_name.clone(),
        pem: request.spec.request.0.clone(),
        usages: request.spec.usages.clone().unwrap_or_default(),
        lifetime: seconds
            .map_or(LIFETIME, |seconds| Duration::from_secs(seconds).clamp(LIFETIME_MIN, LIFETIME)),
    })
}

async fn reconcile(client: Client, name: String, sign: SignCertificate) -> orlop_client::Result<()> {
    let requests = Api::<CertificateSigningRequest>::all(client);
    let Some(mut request) = requests.get_opt(&name).await? else { return Ok(()) };
    let Some(signed) = to_sign(&request).and_then(|to_sign| sign(&to_sign)) else { return Ok(()) };
    let status = request.status.get_or_insert_default();
    match signed {
        Ok(certificate) => status.certificate = Some(ByteString(certificate.into_bytes())),
        Err(message) => {
            status.conditions.get_or_insert_default().push(CertificateSigningRequestCondition {
                type_: "Failed".to_owned(),
                status: "True".to_owned(),
                reason: Some("SignerValidationFailure".to_owned()),
                message: Some(message),
                ..CertificateSigningRequestCondition::default()
            });
        }
    }
    requests.replace_status(&name, &PostParams::default(), &request).await.map(drop)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use serde_json::json;

    use super::*;

    fn request(conditions: &[&str], certificate: &str, seconds: Option<i32>) -> CertificateSigningRequest {
        let conditions: Vec<_> =
            conditions.iter().map(|kind| json!({"type": kind, "status": "True"})).collect();
        let mut value = json!({
            "metadata": {"name": "a"},
            "spec": {"request": "eA==", "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]},
            "status": {"conditions": conditions},
        });
        value["status"]["certificate"] = certificate.into();
        value["spec"]["expirationSeconds"] = seconds.into();
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn only_approved_requests_are_signed_and_once() {
        let wanted = to_sign(&request(&["Approved"], "", Some(3600))).unwrap();
        assert_eq!((wanted.pem, wanted.lifetime), (b"x".to_vec(), Duration::from_secs(3600)));
        assert_eq!(to_sign(&request(&["Approved"], "", None)).unwrap().lifetime, LIFETIME);
        assert_eq!(to_sign(&request(&["Approved"], "", Some(i32::MAX))).unwrap().lifetime, LIFETIME);
        for conditions in [&[][..], &["Denied"], &["Approved", "Denied"], &["Approved", "Failed"]] {
            assert_eq!(to_sign(&request(conditions, "", None)), None, "{conditions:?}");
        }
        assert_eq!(to_sign(&request(&["Approved"], "eA==", None)), None);
    }
}
