//! Status of PodCertificateRequests: only those change it who may sign for the requested signer.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    group_version::GroupResource,
    status::Status,
};
use serde_json::Value;

use super::{Request, escalation::is_allowed, prepare};

const GROUP: &str = "certificates.k8s.io";

/// Refuses a change of the status by a user without `sign` on the signer, or on all of its domain.
pub(super) async fn check(request: &Request, object: &Value, old: &Value) -> Result<(), Status> {
    let kind = &request.kind;
    if kind.gvk.group != GROUP
        || kind.resource != "podcertificaterequests"
        || request.attributes.subresource_name() != "status"
        || object.get("status") == old.get("status")
    {
        return Ok(());
    }
    let signer = old.pointer("/spec/signerName").and_then(Value::as_str).unwrap_or_default();
    let domain = format!("{}/*", signer.split('/').next().unwrap_or_default());
    for name in [signer, &domain] {
        if Box::pin(is_allowed(request, "sign", GroupResource::new(GROUP, "signers"), "", name)).await {
            return Ok(());
        }
    }
    let user = &request.attributes.user.name;
    let detail = format!("User {user:?} is not permitted to \"sign\" for signer {signer:?}");
    let error = FieldError::forbidden(&FieldPath::root("spec").child("signerName"), detail);
    prepare::refuse_invalid(kind, object, &[error])
}
