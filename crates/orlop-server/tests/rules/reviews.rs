//! Reviews.

use serde_json::{Value, json};

use crate::{
    MAPS, refused,
    support::{call, server},
};

fn review(kind: &str, spec: &Value) -> Value {
    let group = if kind == "TokenReview" { "authentication" } else { "authorization" };
    json!({"apiVersion": format!("{group}.k8s.io/v1"), "kind": kind, "spec": spec})
}

#[tokio::test]
async fn incomplete_reviews_are_refused() {
    let (chain, _store) = server().await;
    let neither = "spec: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be \
        specified";
    let of = "/apis/authorization.k8s.io/v1";
    let about_pods = json!({"user": "joe", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "other"}});
    let refusal = |what: &str| format!(".authorization.k8s.io \"\" is invalid: {what}");
    for (path, kind, spec, code, message) in [
        ("selfsubjectaccessreviews", "SelfSubjectAccessReview", json!({}), 422, refusal(neither)),
        (
            "subjectaccessreviews",
            "SubjectAccessReview",
            json!({}),
            422,
            refusal(&format!(
                "[{neither}, spec.user: Invalid value: \"\": at least one of user or group must be specified]"
            )),
        ),
        (
            "namespaces/default/localsubjectaccessreviews",
            "LocalSubjectAccessReview",
            about_pods,
            422,
            refusal(
                "spec.resourceAttributes.namespace: Invalid value: \"other\": must match metadata.namespace",
            ),
        ),
        (
            "selfsubjectrulesreviews",
            "SelfSubjectRulesReview",
            json!({}),
            400,
            "no namespace on request".to_owned(),
        ),
    ] {
        let body = review(kind, &spec);
        refused(&chain, "POST", &format!("{of}/{path}"), Some(&body), code, &message).await;
    }
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let message = "token is required for TokenReview in authentication";
    refused(&chain, "POST", path, Some(&review("TokenReview", &json!({}))), 400, message).await;
}

#[tokio::test]
async fn reviews_are_answered_and_not_stored() {
    let (chain, _store) = server().await;
    let path = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews";
    let attributes = json!({"verb": "get", "resource": "pods", "namespace": "default"});
    let body = review("LocalSubjectAccessReview", &json!({"user": "joe", "resourceAttributes": attributes}));
    let (code, answer) = call(&chain, "POST", path, Some(&body)).await;
    assert_eq!((code, &answer["status"]["allowed"]), (201, &json!(false)), "{answer}");
    assert_eq!(answer["metadata"], json!({"namespace": "default"}));
}

#[tokio::test]
async fn malformed_continue_token_is_reported_first() {
    let (chain, _store) = server().await;
    for (query, message) in [
        (
            "continue=x",
            "invalid continue token: continue key is not valid: illegal base64 data at input byte 0",
        ),
        (
            "continue=x&resourceVersion=5",
            "invalid continue token: continue key is not valid: illegal base64 data at input byte 0",
        ),
    ] {
        refused(&chain, "GET", &format!("{MAPS}?{query}"), None, 400, message).await;
    }
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale"});
    let path = "/apis/apps/v1/namespaces/default/deployments/d/scale";
    let message = "the name of the object (d based on URL) was undeterminable: name must be provided";
    refused(&chain, "PUT", path, Some(&scale), 400, message).await;
}
