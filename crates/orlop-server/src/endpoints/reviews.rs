//! Questions that are asked by creating an object, and answered without storing it: who am I, whose is this
//! token, may they do that.

use http::Response;
use orlop_api::{
    field_error::{FieldError, FieldPath},
    group_version::GroupKind,
    status::Status,
};
use serde_json::{Value, json};

use super::{Request, answer, decoder};
use crate::{
    auth::{User, authorization, service_account},
    http::body::Body,
    object::now,
    request::{
        info::{RequestInfo, ResourceInfo},
        options::WriteOptions,
    },
};

/// Whether a kind is asked instead of stored.
pub(crate) fn is_review(request: &Request) -> bool {
    matches!(request.kind.gvk.group.as_str(), "authentication.k8s.io" | "authorization.k8s.io")
}

/// Answers a review.
pub(crate) async fn create(request: &Request) -> Result<Response<Body>, Status> {
    let options = WriteOptions::of(&request.query, "CreateOptions")?;
    let mut review = decoder::object(request, options.field_validation)?;
    review["status"] = match request.kind.resource.as_str() {
        "selfsubjectreviews" => json!({"userInfo": user_info(&request.user)}),
        "tokenreviews" => token_review(request, &review).await?,
        "selfsubjectaccessreviews" => {
            refuse_invalid(&check(&review))?;
            access(&request.user, &review)
        }
        "subjectaccessreviews" | "localsubjectaccessreviews" => {
            let mut errors = check(&review);
            errors.extend(check_subject(request, &review));
            refuse_invalid(&errors)?;
            access(&subject(&review), &review)
        }
        "selfsubjectrulesreviews" => rules(&request.user, &review)?,
        _ => return Err(Status::method_unknown()),
    };
    // A question has no life of its own; only the answer to "who am I" is given a time.
    review["metadata"] = match request.kind.resource.as_str() {
        "selfsubjectreviews" => json!({"creationTimestamp": now().to_string()}),
        _ if request.kind.namespaced => json!({"namespace": request.about.namespace}),
        _ => json!({}),
    };
    answer::object(request, 201, review)
}

fn user_info(user: &User) -> Value {
    json!({"username": user.name, "groups": user.groups})
}

async fn token_review(request: &Request, review: &Value) -> Result<Value, Status> {
    let token = review.pointer("/spec/token").and_then(Value::as_str).unwrap_or_default();
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    Ok(match service_account::authenticate(request.cluster.issuer(), &request.cluster.objects, token).await {
        Some(user) => json!({
            "authenticated": true, "user": user_info(&user), "audiences": [request.cluster.issuer().name()],
        }),
        None => json!({"user": {}, "error": "invalid bearer token"}),
    })
}

/// The subject of a review about somebody else.
fn subject(review: &Value) -> User {
    let groups = review.pointer("/spec/groups").and_then(Value::as_array).into_iter().flatten();
    User {
        name: review.pointer("/spec/user").and_then(Value::as_str).unwrap_or_default().to_owned(),
        groups: groups.filter_map(Value::as_str).map(str::to_owned).collect(),
        ..User::default()
    }
}

/// Whether a part of a question is there.
fn given<'a>(review: &'a Value, path: &str) -> Option<&'a Value> {
    review.pointer(path).filter(|value| !value.is_null())
}

/// What is wrong with any question about access: it is about a resource or a path, and has no metadata.
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

/// What is wrong with a question about somebody: who it is, and in a namespace, that it asks of that one.
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
        if asked != request.about.namespace {
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

/// Answers 422 unless nothing is wrong. Kubernetes leaves out which kind of question it was.
fn refuse_invalid(errors: &[FieldError]) -> Result<(), Status> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&GroupKind::new("authorization.k8s.io", ""), "", errors))
}

/// Whether a subject may do what a review asks.
fn access(user: &User, review: &Value) -> Value {
    let text = |path: &str| review.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let resource = given(review, "/spec/resourceAttributes").is_some();
    let info = if resource {
        RequestInfo {
            verb: known_verb(&text("/spec/resourceAttributes/verb")),
            resource: Some(ResourceInfo {
                group: text("/spec/resourceAttributes/group"),
                version: text("/spec/resourceAttributes/version"),
                namespace: text("/spec/resourceAttributes/namespace"),
                resource: text("/spec/resourceAttributes/resource"),
                name: text("/spec/resourceAttributes/name"),
                subresource: text("/spec/resourceAttributes/subresource"),
                ..ResourceInfo::default()
            }),
        }
    } else {
        RequestInfo { verb: known_verb(&text("/spec/nonResourceAttributes/verb")), resource: None }
    };
    let allowed = authorization::authorize(user, &info, &text("/spec/nonResourceAttributes/path")).is_ok();
    json!({"allowed": allowed})
}

/// Verbs are fixed words; one that is not known is allowed to nobody but the administrator.
fn known_verb(verb: &str) -> &'static str {
    const VERBS: &[&str] =
        &["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "post", "put"];
    VERBS.iter().find(|known| **known == verb).copied().unwrap_or("other")
}

fn rules(user: &User, review: &Value) -> Result<Value, Status> {
    if review.pointer("/spec/namespace").and_then(Value::as_str).unwrap_or_default().is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let everything = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
    let all_paths = json!({"verbs": ["*"], "nonResourceURLs": ["*"]});
    let open = json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"]});
    Ok(if user.is_master() {
        json!({"resourceRules": [everything], "nonResourceRules": [all_paths], "incomplete": false})
    } else {
        json!({"resourceRules": [], "nonResourceRules": [open], "incomplete": false})
    })
}
