//! Tokens of service accounts.

use http::Response;
use orlop_api::{
    field_error::{FieldError, FieldPath},
    group_version::GroupVersionKind,
    object_meta,
    status::Status,
    time::Time,
};
use serde_json::{Value, json};

use crate::{
    body::Body,
    cluster::{new_uid, now},
    query::WriteOptions,
    verbs::{Request, answer, incoming},
};

/// How long a token is good for: at least, unless said otherwise, and at the most.
const SECONDS_MIN: i64 = 600;
const SECONDS: i64 = 3600;
const SECONDS_MAX: i64 = 1 << 32;

/// Answers a TokenRequest.
pub(super) async fn create(request: &Request) -> Result<Response<Body>, Status> {
    let options = WriteOptions::of(&request.query, "CreateOptions")?;
    let kind = GroupVersionKind::new("authentication.k8s.io", "v1", "TokenRequest");
    let mut token_request = incoming::decoded(request, &request.body, &kind, options.field_validation)?;
    let about = &request.about;
    let account = request.cluster.object(&request.kind, &about.namespace, &about.name).await?;
    let seconds = token_request.pointer("/spec/expirationSeconds").and_then(Value::as_i64).unwrap_or(SECONDS);
    let path = FieldPath::root("spec").child("expirationSeconds");
    let error = if seconds < SECONDS_MIN {
        Some(FieldError::invalid(&path, seconds, "may not specify a duration less than 10 minutes"))
    } else if seconds > SECONDS_MAX {
        Some(FieldError::invalid(&path, seconds, "may not specify a duration larger than 2^32 seconds"))
    } else {
        None
    };
    if let Some(error) = error {
        return Err(Status::invalid(&kind.group_kind(), &about.name, &[error]));
    }
    let issuer = request.cluster.issuer();
    let mut audiences: Vec<String> = token_request
        .pointer("/spec/audiences")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|audience| audience.as_str().map(str::to_owned))
        .collect();
    if audiences.is_empty() {
        audiences.push(issuer.name().to_owned());
    }
    let (issued, expires) = (now().unix_seconds, now().unix_seconds + seconds);
    let claims = json!({
        "iss": issuer.name(), "sub": format!("system:serviceaccount:{}:{}", about.namespace, about.name),
        "aud": audiences, "iat": issued, "nbf": issued, "exp": expires, "jti": new_uid(),
        "kubernetes.io": {
            "namespace": about.namespace,
            "serviceaccount": {"name": about.name, "uid": object_meta::text(object_meta::of(&account), "uid")},
        },
    });
    let token = issuer.sign(&claims).map_err(|error| Status::internal(&error))?;
    token_request["metadata"] = json!({
        "name": about.name, "namespace": about.namespace, "creationTimestamp": Time::from_unix(issued).to_string(),
    });
    token_request["spec"]["audiences"] = json!(audiences);
    token_request["spec"]["expirationSeconds"] = seconds.into();
    token_request["status"] =
        json!({"token": token, "expirationTimestamp": Time::from_unix(expires).to_string()});
    answer::object(request, 201, token_request)
}
