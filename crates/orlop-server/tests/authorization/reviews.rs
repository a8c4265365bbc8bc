//! Access reviews.

use orlop_server::User;
use serde_json::{Value, json};

use crate::{
    binding, call_as, in_namespace, role,
    support::{call, create, server},
    user,
};

const REVIEWS: &str = "/apis/authorization.k8s.io/v1";

fn review(kind: &str, spec: &Value) -> Value {
    json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec})
}

#[tokio::test]
async fn reviews_answer_for_oneself_and_for_others() {
    let (chain, _store) = server().await;
    let rules =
        json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods/log"], "resourceNames": ["p"]}]);
    create(&chain, &in_namespace("default", "roles"), &role("Role", "logs", rules)).await;
    let bound = binding("RoleBinding", "logs", "Role/logs", &["User:ann", "Group:dev"]);
    create(&chain, &in_namespace("default", "rolebindings"), &bound).await;
    let attributes =
        json!({"verb": "get", "resource": "pods", "subresource": "log", "name": "p", "namespace": "default"});
    let own = review("SelfSubjectAccessReview", &json!({"resourceAttributes": attributes}));
    let path = format!("{REVIEWS}/selfsubjectaccessreviews");
    let (code, answer) = call_as(&chain, &user("ann"), "POST", &path, Some(&own)).await;
    assert_eq!(code, 201, "{answer}");
    let reason = "RBAC: allowed by RoleBinding \"logs/default\" of Role \"logs\" to User \"ann\"";
    assert_eq!(answer["status"], json!({"allowed": true, "reason": reason}));
    let (_, answer) = call_as(&chain, &user("bob"), "POST", &path, Some(&own)).await;
    assert_eq!(answer["status"], json!({"allowed": false}));

    let path = format!("{REVIEWS}/subjectaccessreviews");
    let other = review(
        "SubjectAccessReview",
        &json!({"user": "x", "groups": ["dev"], "resourceAttributes": attributes}),
    );
    assert_eq!(call_as(&chain, &user("ann"), "POST", &path, Some(&other)).await.0, 403);
    let (_, answer) = call(&chain, "POST", &path, Some(&other)).await;
    assert_eq!(answer["status"]["allowed"], true, "{answer}");
    let paths = json!({"user": "x", "nonResourceAttributes": {"verb": "get", "path": "/healthz"}});
    let (_, answer) = call(&chain, "POST", &path, Some(&review("SubjectAccessReview", &paths))).await;
    assert_eq!(answer["status"]["allowed"], false, "only authenticated users are in the group");
}

#[tokio::test]
async fn selectors_of_reviews_are_validated() {
    let (chain, _store) = server().await;
    let path = format!("{REVIEWS}/selfsubjectaccessreviews");
    let ask = async |selectors: Value| {
        let mut attributes = json!({"verb": "list", "resource": "pods"});
        attributes.as_object_mut().unwrap().extend(selectors.as_object().unwrap().clone());
        let body = review("SelfSubjectAccessReview", &json!({"resourceAttributes": attributes}));
        let (_, answer) = call(&chain, "POST", &path, Some(&body)).await;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        text(&answer["message"]) + &text(&answer["status"]["evaluationError"])
    };
    let prefix = ".authorization.k8s.io \"\" is invalid: spec.resourceAttributes";
    for (selectors, expected) in [
        (json!({"fieldSelector": {"rawSelector": "spec.nodeName=x"}}), String::new()),
        (
            json!({"fieldSelector": {}}),
            format!(
                "{prefix}.fieldSelector.requirements: Required value: when spec.resourceAttributes.fieldSelector is \
                 specified, requirements or rawSelector is required"
            ),
        ),
        (
            json!({"labelSelector": {"rawSelector": "a", "requirements": [{"key": "a", "operator": "Exists"}]}}),
            format!(
                "{prefix}.labelSelector.rawSelector: Invalid value: \"a\": may not specified at the same time as \
                 requirements"
            ),
        ),
        (
            json!({"fieldSelector": {"requirements": [{"key": "a", "operator": "In"}]}}),
            format!(
                "{prefix}.fieldSelector.requirements[0].values: Required value: must be specified when `operator` is \
                 'In' or 'NotIn'"
            ),
        ),
        (
            json!({"labelSelector": {"requirements": [{"key": "a", "operator": "Near"}]}}),
            "spec.resourceAttributes.labelSelector ignored due to parse error".to_owned(),
        ),
        (
            json!({"fieldSelector": {"requirements": [
                {"key": "a", "operator": "In", "values": ["x"]}, {"key": "a", "operator": "Exists"}]}}),
            "spec.resourceAttributes.fieldSelector partially ignored due to parse error".to_owned(),
        ),
    ] {
        assert_eq!(ask(selectors.clone()).await, expected, "{selectors}");
    }
    let mut named =
        review("SelfSubjectAccessReview", &json!({"nonResourceAttributes": {"path": "/", "verb": "get"}}));
    named["metadata"] = json!({"name": "x"});
    let (code, answer) = call(&chain, "POST", &path, Some(&named)).await;
    let message =
        ".authorization.k8s.io \"\" is invalid: metadata: Invalid value: {\"name\":\"x\"}: must be empty";
    assert_eq!((code, answer["message"].as_str()), (422, Some(message)));
}

#[tokio::test]
async fn rules_review_lists_rules_once() {
    let (chain, _store) = server().await;
    let rules = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["p"]}]);
    create(&chain, &in_namespace("default", "roles"), &role("Role", "pods", rules)).await;
    let bound = binding("RoleBinding", "pods", "Role/pods", &["User:ann", "Group:system:authenticated"]);
    create(&chain, &in_namespace("default", "rolebindings"), &bound).await;
    let bound = binding("RoleBinding", "gone", "Role/gone", &["User:ann"]);
    create(&chain, &in_namespace("default", "rolebindings"), &bound).await;
    let body = review("SelfSubjectRulesReview", &json!({"namespace": "default"}));
    let path = format!("{REVIEWS}/selfsubjectrulesreviews");
    let (code, answer) = call_as(&chain, &user("ann"), "POST", &path, Some(&body)).await;
    assert_eq!((code, &answer["spec"]), (201, &json!({})), "{answer}");
    let status = &answer["status"];
    assert_eq!(
        status["resourceRules"],
        json!([
            {"verbs": ["create"], "apiGroups": ["authorization.k8s.io"],
                "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]},
            {"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]},
            {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["p"]},
        ])
    );
    assert_eq!(status["nonResourceRules"].as_array().map(Vec::len), Some(2));
    assert_eq!(status["incomplete"], false);
    assert_eq!(status["evaluationError"], "role.rbac.authorization.k8s.io \"gone\" not found");
    let (_, answer) = call_as(&chain, &User::master("admin"), "POST", &path, Some(&body)).await;
    let all = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
    assert_eq!(answer["status"]["resourceRules"][0], all, "cluster-admin is bound to system:masters");
}
