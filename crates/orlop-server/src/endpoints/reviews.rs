//! Reviews: created, answered and not stored. SelfSubjectReview, TokenReview, SubjectAccessReview and so on.

use http::Response;
use orlop_api::{status::Status, user::UserInfo};
use serde_json::{Value, json};

use super::{Request, access_reviews, answer, decoder};
use crate::{
    auth::{Access, Authenticated, AuthenticationError},
    http::body::Body,
    object::now,
    registry::Kind,
    request::options::WriteOptions,
};

/// Returns true if a kind is answered instead of stored.
pub(super) fn is_review(kind: &Kind) -> bool {
    matches!(kind.gvk.group.as_str(), "authentication.k8s.io" | "authorization.k8s.io")
}

/// Answers a review.
pub(super) async fn create(access: &Access, request: &Request) -> Result<Response<Body>, Status> {
    let options = WriteOptions::of(&request.query, "CreateOptions")?;
    let mut review = decoder::object(request, options.field_validation)?;
    review["status"] = match request.kind.resource.as_str() {
        "selfsubjectreviews" => json!({"userInfo": user_info(&request.attributes.user)}),
        "tokenreviews" => token_review(access, &review).await?,
        "selfsubjectaccessreviews" | "subjectaccessreviews" | "localsubjectaccessreviews" => {
            access_reviews::review(access, request, &review).await?
        }
        "selfsubjectrulesreviews" => {
            let status = access_reviews::rules(access, &request.attributes.user, &review).await?;
            // As in Kubernetes, which answers with a new object.
            review["spec"] = json!({});
            status
        }
        _ => return Err(Status::method_unknown()),
    };
    // A review is not stored and has no metadata; only SelfSubjectReview has a creationTimestamp.
    review["metadata"] = match request.kind.resource.as_str() {
        "selfsubjectreviews" => json!({"creationTimestamp": now().to_string()}),
        _ if request.kind.namespaced => json!({"namespace": request.attributes.namespace}),
        _ => json!({}),
    };
    answer::object(request, 201, review)
}

fn user_info(user: &UserInfo) -> Value {
    let mut info = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        info["uid"] = user.uid.as_str().into();
    }
    if !user.extra.is_empty() {
        info["extra"] = json!(user.extra);
    }
    info
}

/// Answers whose token it is, and for which of the requested audiences. Without a request, for the API
/// server's own.
async fn token_review(access: &Access, review: &Value) -> Result<Value, Status> {
    let token = review.pointer("/spec/token").and_then(Value::as_str).unwrap_or_default();
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let requested = review.pointer("/spec/audiences").and_then(Value::as_array).into_iter().flatten();
    let requested: Vec<String> = requested.filter_map(Value::as_str).map(str::to_owned).collect();
    let audiences =
        if requested.is_empty() { access.authenticator.audiences() } else { requested.as_slice() };
    Ok(match access.authenticator.authenticate_token(token, audiences).await {
        Ok(Some(Authenticated { user, audiences, .. })) => {
            json!({"authenticated": true, "user": user_info(&user), "audiences": audiences})
        }
        Ok(None) => json!({"user": {}, "error": "invalid bearer token"}),
        Err(AuthenticationError::Invalid(why)) => {
            json!({"user": {}, "error": format!("[invalid bearer token, {why}]")})
        }
        Err(AuthenticationError::Unavailable(status)) => return Err(status),
    })
}
