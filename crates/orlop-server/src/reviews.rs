//! Questions that are asked by creating an object, and answered without storing it: who am I, whose is this
//! token, may they do that.

use http::Response;
use orlop_api::status::Status;
use serde_json::{Value, json};

use crate::{
    User,
    body::Body,
    cluster::now,
    filters::{authentication, authorization},
    query::WriteOptions,
    request_info::{RequestInfo, ResourceInfo},
    verbs::{Request, answer, incoming},
};

/// Whether a kind is asked instead of stored.
pub(crate) fn is_review(request: &Request) -> bool {
    matches!(request.kind.gvk.group.as_str(), "authentication.k8s.io" | "authorization.k8s.io")
}

/// Answers a review.
pub(crate) async fn create(request: &Request) -> Result<Response<Body>, Status> {
    let options = WriteOptions::of(&request.query, "CreateOptions")?;
    let mut review = incoming::object(request, options.field_validation)?;
    review["status"] = match request.kind.resource.as_str() {
        "selfsubjectreviews" => json!({"userInfo": user_info(&request.user)}),
        "tokenreviews" => token_review(request, &review).await,
        "selfsubjectaccessreviews" => access(&request.user, &review)?,
        "subjectaccessreviews" | "localsubjectaccessreviews" => {
            check_namespace(request, &review)?;
            access(&subject(&review), &review)?
        }
        "selfsubjectrulesreviews" => rules(&request.user),
        _ => return Err(Status::method_unknown()),
    };
    let created = now().to_string();
    review["metadata"] = json!({"creationTimestamp": created});
    answer::object(request, 201, review)
}

fn user_info(user: &User) -> Value {
    json!({"username": user.name, "groups": user.groups})
}

async fn token_review(request: &Request, review: &Value) -> Value {
    let token = review.pointer("/spec/token").and_then(Value::as_str).unwrap_or_default();
    match authentication::service_account(&request.cluster, token).await {
        Some(user) => json!({
            "authenticated": true, "user": user_info(&user), "audiences": [request.cluster.issuer().name()],
        }),
        None => json!({"user": {}, "error": "invalid bearer token"}),
    }
}

/// The subject of a review about somebody else.
fn subject(review: &Value) -> User {
    let groups = review.pointer("/spec/groups").and_then(Value::as_array).into_iter().flatten();
    User {
        name: review.pointer("/spec/user").and_then(Value::as_str).unwrap_or_default().to_owned(),
        groups: groups.filter_map(Value::as_str).map(str::to_owned).collect(),
    }
}

fn check_namespace(request: &Request, review: &Value) -> Result<(), Status> {
    let asked =
        review.pointer("/spec/resourceAttributes/namespace").and_then(Value::as_str).unwrap_or_default();
    let namespace = &request.about.namespace;
    if request.kind.namespaced && asked != namespace {
        return Err(Status::bad_request(format!(
            "spec.resourceAttributes.namespace must match namespace: {namespace}"
        )));
    }
    Ok(())
}

/// Whether a subject may do what a review asks.
fn access(user: &User, review: &Value) -> Result<Value, Status> {
    let text = |path: &str| review.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let resource = review.pointer("/spec/resourceAttributes").is_some_and(|attributes| !attributes.is_null());
    let path = review.pointer("/spec/nonResourceAttributes").is_some_and(|attributes| !attributes.is_null());
    if resource == path {
        return Err(Status::bad_request(
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ));
    }
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
    Ok(json!({"allowed": allowed}))
}

/// Verbs are fixed words; one that is not known is allowed to nobody but the administrator.
fn known_verb(verb: &str) -> &'static str {
    const VERBS: &[&str] =
        &["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "post", "put"];
    VERBS.iter().find(|known| **known == verb).copied().unwrap_or("other")
}

fn rules(user: &User) -> Value {
    let everything = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
    let all_paths = json!({"verbs": ["*"], "nonResourceURLs": ["*"]});
    let open = json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"]});
    if user.is_master() {
        json!({"resourceRules": [everything], "nonResourceRules": [all_paths], "incomplete": false})
    } else {
        json!({"resourceRules": [], "nonResourceRules": [open], "incomplete": false})
    }
}
