//! CertificateApproval, CertificateSigning, ClusterTrustBundleAttest: users need a permission for the signer.
//! CertificateSubjectRestriction: nobody gets a client certificate of `system:masters`.

use async_trait::async_trait;
use base64::{Engine, engine::general_purpose::STANDARD};
use orlop_api::status::Status;
use orlop_auth::{UnionAuthorizer, certificate_request::CertificateRequest};
use orlop_kinds::accessors::{list, text};
use serde_json::Value;

use super::authorization::Permission;
use crate::{Admission, AdmissionRequest, Operation, Phase, Resources};

const GROUP: &str = "certificates.k8s.io";
const REQUESTS: &[(&str, &str)] = &[(GROUP, "certificatesigningrequests")];
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// Returns true if the user has a verb on a signer, or on all of its domain.
async fn is_allowed(
    authorizer: &UnionAuthorizer,
    request: &AdmissionRequest<'_>,
    verb: &str,
    signer: &str,
) -> bool {
    let domain = format!("{}/*", signer.split('/').next().unwrap_or_default());
    for name in [signer, &domain] {
        let permission = Permission {
            verb,
            group: GROUP,
            version: "*",
            resource: "signers",
            name,
            ..Permission::default()
        };
        if permission.is_granted(authorizer, request).await {
            return true;
        }
    }
    false
}

/// Requires `approve` on the signer of a request that is approved or denied.
#[derive(Debug)]
pub(super) struct CertificateApproval(pub(super) UnionAuthorizer);

#[async_trait]
impl Admission for CertificateApproval {
    fn resources(&self) -> Resources {
        Resources::Only(REQUESTS)
    }

    fn handles(&self, phase: Phase, operation: Operation) -> bool {
        (phase, operation) == (Phase::Validating, Operation::Update)
    }

    async fn validate(
        &self,
        request: &AdmissionRequest<'_>,
        _object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let (Some(old), "approval") = (old, request.subresource()) else { return Ok(()) };
        // Of the old object: the signer cannot change.
        let signer = text(old, "/spec/signerName");
        if is_allowed(&self.0, request, "approve", signer).await {
            return Ok(());
        }
        let why = format!("user not permitted to approve requests with signerName {signer:?}");
        Err(request.forbidden(old, why))
    }
}

/// Requires `sign` on the signer of a request that is signed.
#[derive(Debug)]
pub(super) struct CertificateSigning(pub(super) UnionAuthorizer);

#[async_trait]
impl Admission for CertificateSigning {
    fn resources(&self) -> Resources {
        Resources::Only(REQUESTS)
    }

    fn handles(&self, phase: Phase, operation: Operation) -> bool {
        (phase, operation) == (Phase::Validating, Operation::Update)
    }

    async fn validate(
        &self,
        request: &AdmissionRequest<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let (Some(object), Some(old), "status") = (object, old, request.subresource()) else { return Ok(()) };
        let signed = |object: &Value| {
            (text(object, "/status/certificate").to_owned(), list(object, "/status/conditions").to_vec())
        };
        let signer = text(old, "/spec/signerName");
        if signed(object) == signed(old) || is_allowed(&self.0, request, "sign", signer).await {
            return Ok(());
        }
        Err(request.forbidden(old, format!("user not permitted to sign requests with signerName {signer:?}")))
    }
}

/// Requires `attest` on the signer of a trust bundle.
#[derive(Debug)]
pub(super) struct ClusterTrustBundleAttest(pub(super) UnionAuthorizer);

#[async_trait]
impl Admission for ClusterTrustBundleAttest {
    fn resources(&self) -> Resources {
        Resources::Only(&[(GROUP, "clustertrustbundles")])
    }

    fn handles(&self, phase: Phase, operation: Operation) -> bool {
        phase == Phase::Validating && matches!(operation, Operation::Create | Operation::Update)
    }

    async fn validate(
        &self,
        request: &AdmissionRequest<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let Some(object) = object else { return Ok(()) };
        let signer = text(object, "/spec/signerName");
        // Storage migration and garbage collection write the same bundle again.
        let is_same =
            old.is_some_and(|old| old.get("spec") == object.get("spec") && is_same_metadata(object, old));
        if signer.is_empty() || is_same || is_allowed(&self.0, request, "attest", signer).await {
            return Ok(());
        }
        Err(request.forbidden(object, format!("user not permitted to attest for signerName {signer:?}")))
    }
}

/// Returns true if nothing but the fields differ that garbage collection changes.
fn is_same_metadata(object: &Value, old: &Value) -> bool {
    let metadata = |object: &Value| {
        let mut metadata = object.get("metadata").cloned().unwrap_or_default();
        if let Some(map) = metadata.as_object_mut() {
            for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion", "selfLink"] {
                map.remove(field);
            }
        }
        metadata
    };
    metadata(object) == metadata(old)
}

/// Refuses client certificates for `system:masters`.
#[derive(Debug)]
pub(super) struct CertificateSubjectRestriction;

#[async_trait]
impl Admission for CertificateSubjectRestriction {
    fn resources(&self) -> Resources {
        Resources::Only(REQUESTS)
    }

    fn handles(&self, phase: Phase, operation: Operation) -> bool {
        (phase, operation) == (Phase::Validating, Operation::Create)
    }

    async fn validate(
        &self,
        request: &AdmissionRequest<'_>,
        object: Option<&Value>,
        _old: Option<&Value>,
    ) -> Result<(), Status> {
        let Some(object) = object.filter(|_| request.subresource().is_empty()) else { return Ok(()) };
        if text(object, "/spec/signerName") != CLIENT_SIGNER {
            return Ok(());
        }
        let parsed = parse_request(object)
            .map_err(|why| request.forbidden(object, format!("failed to parse CSR: {why}")))?;
        if parsed.organizations.iter().any(|group| group == "system:masters") {
            let why = format!("use of {CLIENT_SIGNER} signer with system:masters group is not allowed");
            return Err(request.forbidden(object, why));
        }
        Ok(())
    }
}

/// Parses the request in a CertificateSigningRequest.
pub(super) fn parse_request(object: &Value) -> Result<CertificateRequest, String> {
    let pem = STANDARD.decode(text(object, "/spec/request")).map_err(|error| error.to_string())?;
    CertificateRequest::parse(&pem).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use orlop_api::user::UserInfo;
    use orlop_auth::certificate_request::ClientKey;
    use serde_json::json;

    use super::*;
    use crate::plugins::testing::{Grants, Run, message};

    fn signing_request(signer: &str) -> Value {
        json!({"metadata": {"name": "r"}, "spec": {"signerName": signer}})
    }

    #[tokio::test]
    async fn approval_needs_a_permission_for_the_signer_or_its_domain() {
        let run = Run::update(GROUP, "certificatesigningrequests", signing_request("example.org/one"))
            .at("approval");
        let approve = |grants: &[(&str, &str)]| {
            let plugin = CertificateApproval(Grants::authorizer(grants));
            let run = run.clone();
            async move { message(run.mutate(&plugin, signing_request("example.org/one")).await) }
        };
        assert_eq!(approve(&[("approve", "example.org/one")]).await, "");
        assert_eq!(approve(&[("approve", "example.org/*")]).await, "");
        assert_eq!(
            approve(&[("sign", "example.org/one")]).await,
            "certificatesigningrequests.certificates.k8s.io \"r\" is forbidden: user not permitted to approve requests \
             with signerName \"example.org/one\""
        );
    }

    #[tokio::test]
    async fn signing_needs_a_permission_if_the_certificate_changes() {
        let run = Run::update(GROUP, "certificatesigningrequests", signing_request("a.b/c")).at("status");
        let plugin = CertificateSigning(Grants::authorizer(&[]));
        assert_eq!(message(run.mutate(&plugin, signing_request("a.b/c")).await), "");
        let mut signed = signing_request("a.b/c");
        signed["status"] = json!({"certificate": "Zm9v"});
        assert!(
            message(run.mutate(&plugin, signed).await)
                .ends_with("user not permitted to sign requests with signerName \"a.b/c\"")
        );
    }

    #[tokio::test]
    async fn trust_bundle_of_a_signer_needs_attest() {
        let bundle = json!({"metadata": {"name": "b"}, "spec": {"signerName": "a.b/c"}});
        let run = Run::create(GROUP, "clustertrustbundles");
        let attest = |grants: &[(&str, &str)], bundle: Value| {
            let plugin = ClusterTrustBundleAttest(Grants::authorizer(grants));
            let run = run.clone();
            async move { message(run.mutate(&plugin, bundle).await) }
        };
        assert_eq!(attest(&[("attest", "a.b/c")], bundle.clone()).await, "");
        assert!(attest(&[], bundle).await.ends_with("user not permitted to attest for signerName \"a.b/c\""));
        assert_eq!(attest(&[], json!({"spec": {}})).await, "");
    }

    #[tokio::test]
    async fn nobody_asks_for_a_certificate_of_masters() {
        let created = |group: &str| {
            let key = ClientKey::generate("somebody", &[group.to_owned()]).unwrap();
            let mut object = signing_request(CLIENT_SIGNER);
            object["spec"]["request"] = STANDARD.encode(key.request).into();
            let run = Run::create(GROUP, "certificatesigningrequests").by(UserInfo::master("root"));
            async move { message(run.mutate(&CertificateSubjectRestriction, object).await) }
        };
        assert_eq!(created("developers").await, "");
        assert!(created("system:masters").await.ends_with(
            "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"
        ));
    }
}
