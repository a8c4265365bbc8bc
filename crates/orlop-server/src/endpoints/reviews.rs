//! Reviews: created, answered and not stored. SelfSubjectReview, TokenReview, SubjectAccessReview and so on.

use std::sync::Arc;

use http::Response;
use orlop_api::{
    field_error::{FieldError, FieldPath},
    group_version::GroupKind,
    status::Status,
    user::UserInfo,
};
use serde_json::{Value, json};

use super::{Request, answer, decoder};
use crate::{
    auth::{
        Access, Authenticated, AuthenticationError, Credentials, Decision,
        authorizer::{PathRule, ResourceRule},
    },
    http::body::Body,
    object::now,
    registry::Kind,
    request::{Attributes, options::WriteOptions},
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
        "tokenreviews" => token_review(access, request, &review).await?,
        "selfsubjectaccessreviews" => {
            refuse_invalid(&check(&review))?;
            access_review(access, request.attributes.user.clone(), &review).await
        }
        "subjectaccessreviews" | "localsubjectaccessreviews" => {
            let mut errors = check(&review);
            errors.extend(check_subject(request, &review));
            refuse_invalid(&errors)?;
            access_review(access, Arc::new(subject(&review)), &review).await
        }
        "selfsubjectrulesreviews" => rules_review(access, &request.attributes.user, &review).await?,
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
async fn token_review(access: &Access, request: &Request, review: &Value) -> Result<Value, Status> {
    let token = review.pointer("/spec/token").and_then(Value::as_str).unwrap_or_default();
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let requested = review.pointer("/spec/audiences").and_then(Value::as_array).into_iter().flatten();
    let requested: Vec<String> = requested.filter_map(Value::as_str).map(str::to_owned).collect();
    let audiences = if requested.is_empty() { &access.audiences } else { &requested };
    let credentials = Credentials { token: Some(token), headers: &request.headers, audiences };
    Ok(match access.authenticator.authenticate(&credentials).await {
        Ok(Some(Authenticated { user, audiences: shared })) => {
            // A static token has no audiences: it is good for the API server's own.
            let shared = if shared.is_empty() { intersection(audiences, &access.audiences) } else { shared };
            if shared.is_empty() {
                return Ok(json!({"user": {}, "error": "invalid bearer token"}));
            }
            json!({"authenticated": true, "user": user_info(&user), "audiences": shared})
        }
        Ok(None) => json!({"user": {}, "error": "invalid bearer token"}),
        Err(AuthenticationError::Invalid(why)) => {
            json!({"user": {}, "error": format!("[invalid bearer token, {why}]")})
        }
        Err(AuthenticationError::Unavailable(status)) => return Err(status),
    })
}

fn intersection(one: &[String], other: &[String]) -> Vec<String> {
    one.iter().filter(|audience| other.contains(audience)).cloned().collect()
}

/// Returns the subject of a SubjectAccessReview.
fn subject(review: &Value) -> UserInfo {
    let groups = review.pointer("/spec/groups").and_then(Value::as_array).into_iter().flatten();
    UserInfo {
        name: review.pointer("/spec/user").and_then(Value::as_str).unwrap_or_default().to_owned(),
        groups: groups.filter_map(Value::as_str).map(str::to_owned).collect(),
        ..UserInfo::default()
    }
}

/// Returns a field that is present and not null.
fn given<'a>(review: &'a Value, path: &str) -> Option<&'a Value> {
    review.pointer(path).filter(|value| !value.is_null())
}

/// Validates an access review: either resource or non-resource attributes.
fn check(review: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let path = given(review, "/spec/nonResourceAttributes");
    if given(review, "/spec/resourceAttributes").is_some() == path.is_some() {
        let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        let value = path.cloned().unwrap_or_default();
        errors.push(FieldError::invalid(&FieldPath::root("spec"), value, detail));
    }
    errors
}

/// Validates the subject of an access review, and the namespace of a local one.
fn check_subject(request: &Request, review: &Value) -> Vec<FieldError> {
    let (mut errors, user) = (Vec::new(), subject(review));
    let path = FieldPath::root("spec");
    if user.name.is_empty() && user.groups.is_empty() {
        let detail = "at least one of user or group must be specified";
        errors.push(FieldError::invalid(&path.child("user"), "", detail));
    }
    if !request.kind.namespaced {
        return errors;
    }
    if let Some(attributes) = given(review, "/spec/resourceAttributes") {
        let asked = attributes.get("namespace").and_then(Value::as_str).unwrap_or_default();
        if asked != request.attributes.namespace {
            let path = path.child("resourceAttributes").child("namespace");
            errors.push(FieldError::invalid(&path, asked, "must match metadata.namespace"));
        }
    }
    if let Some(attributes) = given(review, "/spec/nonResourceAttributes") {
        let path = path.child("nonResourceAttributes");
        errors.push(FieldError::invalid(&path, attributes.clone(), "disallowed on this kind of request"));
    }
    errors
}

/// Returns Invalid if there are errors. Kubernetes leaves out the kind of the review.
fn refuse_invalid(errors: &[FieldError]) -> Result<(), Status> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&GroupKind::new("authorization.k8s.io", ""), "", errors))
}

/// Answers whether a subject may do what a review asks.
async fn access_review(access: &Access, user: Arc<UserInfo>, review: &Value) -> Value {
    let text = |path: &str| review.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let attributes = if given(review, "/spec/resourceAttributes").is_some() {
        let field = |name: &str| text(&format!("/spec/resourceAttributes/{name}"));
        let subresource = field("subresource");
        Attributes {
            user,
            verb: field("verb").as_str().into(),
            is_resource_request: true,
            group: field("group"),
            version: field("version"),
            resource: field("resource"),
            subresource: (!subresource.is_empty()).then(|| subresource.as_str().into()),
            namespace: field("namespace"),
            name: field("name"),
            ..Attributes::default()
        }
    } else {
        let verb = text("/spec/nonResourceAttributes/verb").as_str().into();
        Attributes { user, verb, path: text("/spec/nonResourceAttributes/path"), ..Attributes::default() }
    };
    let (mut status, reason) = match access.authorizer.authorize(&attributes).await {
        Decision::Allow(reason) => (json!({"allowed": true}), reason),
        Decision::Deny(reason) => (json!({"allowed": false, "denied": true}), reason),
        Decision::NoOpinion(reason) => (json!({"allowed": false}), reason),
    };
    if !reason.is_empty() {
        status["reason"] = reason.into();
    }
    status
}

/// Answers what a user may do in a namespace.
async fn rules_review(access: &Access, user: &UserInfo, review: &Value) -> Result<Value, Status> {
    let namespace = review.pointer("/spec/namespace").and_then(Value::as_str).unwrap_or_default();
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let rules = access.authorizer.rules(user, namespace).await;
    let resource = |rule: &ResourceRule| json!({"verbs": rule.verbs, "apiGroups": rule.groups, "resources": rule.resources});
    let path = |rule: &PathRule| json!({"verbs": rule.verbs, "nonResourceURLs": rule.paths});
    Ok(json!({
        "resourceRules": rules.resources.iter().map(resource).collect::<Vec<_>>(),
        "nonResourceRules": rules.paths.iter().map(path).collect::<Vec<_>>(),
        "incomplete": rules.incomplete,
    }))
}
