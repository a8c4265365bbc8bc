//! Rules, selectors, match conditions and equivalent versions, seen by webhooks.

use serde_json::json;

use super::*;

/// Returns the kinds and resources that webhooks were called with since the last call.
fn requests(hook: &Hook) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let requests = |review: &Value| {
        let request = &review["request"];
        let part = |field: &str, name: &str| {
            format!(
                "{}/{} {}",
                text(&request[field]["group"]),
                text(&request[field]["version"]),
                text(&request[field][name])
            )
        };
        format!(
            "{} {} as {}",
            text(&request["operation"]),
            part("requestResource", "resource"),
            part("kind", "kind"),
        )
    };
    hook.take_reviews().iter().map(requests).collect()
}

#[tokio::test]
async fn events_are_seen_in_the_version_of_the_rule() {
    let hook = Hook::start(&[], allow).await;
    let chain = server().await;
    let mut events = webhook(&hook, "a.example.com");
    events["rules"] = json!([rule("events.k8s.io", "v1", "events")]);
    configure(&chain, MUTATING, "c", &[events.clone()]).await;
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
        "involvedObject": {"namespace": "default"}, "message": "hello", "reason": "R", "type": "Normal"});
    hook.answers(|review| {
        assert_eq!(review["request"]["object"]["note"], "hello");
        patch(review, &json!([{"op": "replace", "path": "/note", "value": "patched"}]))
    });
    let path = "/api/v1/namespaces/default/events";
    let (code, made) = call(&chain, "POST", path, Some(&event)).await;
    assert_eq!((code, &made["message"]), (201, &json!("patched")), "{made}");
    assert_eq!(requests(&hook), ["CREATE /v1 events as events.k8s.io/v1 Event"]);
    assert_eq!(call(&chain, "DELETE", &format!("{MUTATING}/c"), None).await.0, 200);
    events["matchPolicy"] = "Exact".into();
    configure(&chain, MUTATING, "c", &[events]).await;
    let mut other = event;
    other["metadata"]["name"] = "f".into();
    assert_eq!(call(&chain, "POST", path, Some(&other)).await.1["message"], "hello");
}

#[tokio::test]
async fn custom_resources_are_seen_in_the_version_of_the_rule() {
    let hook = Hook::start(&[], allow).await;
    let chain = server().await;
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [
            {"name": "v1", "served": true, "storage": true, "schema": schema},
            {"name": "v2", "served": true, "storage": false, "schema": schema},
        ]}});
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(call(&chain, "POST", path, Some(&definition)).await.0, 201);
    let mut widgets = webhook(&hook, "a.example.com");
    widgets["rules"] = json!([rule("example.com", "v1", "widgets")]);
    configure(&chain, MUTATING, "c", &[widgets.clone()]).await;
    configure(&chain, VALIDATING, "c", &[widgets]).await;
    hook.answers(|review| match review["request"]["object"]["spec"]["size"].as_i64() {
        Some(1) => patch(review, &json!([{"op": "replace", "path": "/spec/size", "value": 2}])),
        _ => allow(review),
    });
    let widget = json!({"apiVersion": "example.com/v2", "kind": "Widget", "metadata": {"name": "w"},
        "spec": {"size": 1}});
    let (code, made) =
        call(&chain, "POST", "/apis/example.com/v2/namespaces/default/widgets", Some(&widget)).await;
    assert_eq!(
        (code, &made["spec"], &made["apiVersion"]),
        (201, &json!({"size": 2}), &json!("example.com/v2"))
    );
    let expected = "CREATE example.com/v2 widgets as example.com/v1 Widget";
    assert_eq!(requests(&hook), [expected, expected]);
}

#[tokio::test]
async fn selectors_and_conditions_choose_requests() {
    let hook = Hook::start(&[], allow).await;
    let chain = server().await;
    let namespace = |name: &str, labels: Value| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    for (name, labels) in [("prod", json!({"env": "prod"})), ("test", json!({}))] {
        let made = call(&chain, "POST", "/api/v1/namespaces", Some(&namespace(name, labels))).await;
        assert_eq!(made.0, 201);
    }
    let mut selecting = webhook(&hook, "a.example.com");
    selecting["namespaceSelector"] = json!({"matchLabels": {"env": "prod"}});
    selecting["objectSelector"] = json!({"matchExpressions": [{"key": "skip", "operator": "DoesNotExist"}]});
    selecting["matchConditions"] = json!([
        {"name": "not-system", "expression": "!request.userInfo.username.startsWith('system:')"},
        {"name": "big", "expression": "size(object.data) > 1"},
        {"name": "may", "expression": "authorizer.requestResource.check('create').allowed()"},
    ]);
    configure(&chain, VALIDATING, "c", &[selecting]).await;
    let create = async |namespace: &str, name: &str, labels: Value, data: Value| {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels},
            "data": data});
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        assert_eq!(call(&chain, "POST", &path, Some(&map)).await.0, 201);
        hook.take_reviews().len()
    };
    let (big, small) = (json!({"a": "1", "b": "2"}), json!({"a": "1"}));
    assert_eq!(create("prod", "a", json!({}), big.clone()).await, 1);
    assert_eq!(create("test", "a", json!({}), big.clone()).await, 0, "the namespace is not selected");
    assert_eq!(create("prod", "b", json!({"skip": "yes"}), big).await, 0, "the object is not selected");
    assert_eq!(create("prod", "c", json!({}), small).await, 0, "a condition is false");
    // A condition that fails is subject to the failure policy.
    let no_data = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}});
    let (code, failed) = call(&chain, "POST", "/api/v1/namespaces/prod/configmaps", Some(&no_data)).await;
    assert_eq!(code, 403);
    assert_eq!(
        failed["message"],
        "configmaps \"d\" is forbidden: expression 'size(object.data) > 1' resulted in error: no such key: data"
    );
}

#[tokio::test]
async fn invalid_conditions_are_refused_when_they_are_written() {
    let hook = Hook::start(&[], allow).await;
    let chain = server().await;
    let mut wrong = webhook(&hook, "a.example.com");
    wrong["matchConditions"] =
        json!([{"name": "c", "expression": "object.x +"}, {"name": "d", "expression": "1"}]);
    let object = configuration("ValidatingWebhookConfiguration", "c", &[wrong]);
    let (code, refused) = call(&chain, "POST", VALIDATING, Some(&object)).await;
    assert_eq!(code, 422);
    let message = refused["message"].as_str().unwrap();
    assert!(
        message.starts_with(
            "ValidatingWebhookConfiguration.admissionregistration.k8s.io \"c\" is invalid: \
             [webhooks[0].matchConditions[0].expression: Invalid value: \"object.x +\": compilation failed: ERROR: \
             <input>:1:11: Syntax error"
        ),
        "{message}"
    );
    assert!(
        message.contains(
            "matchConditions[1].expression: Invalid value: \"1\": must evaluate to bool but got int"
        )
    );
}

#[tokio::test]
async fn reviews_are_never_seen() {
    let hook = Hook::start(&[], |review| response(review, json!({"allowed": false}))).await;
    let chain = server().await;
    let mut all = webhook(&hook, "a.example.com");
    all["rules"] =
        json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]);
    configure(&chain, MUTATING, "c", &[all.clone()]).await;
    configure(&chain, VALIDATING, "c", &[all]).await;
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(call(&chain, "POST", path, Some(&review)).await.0, 201);
    assert_eq!(hook.calls(), 0);
    assert_eq!(call(&chain, "POST", MAPS, Some(&config_map("m"))).await.0, 400);
}

#[tokio::test]
async fn services_lead_to_webhooks() {
    // Endpoints may be of this part of the loopback network.
    let address = "127.64.0.7";
    let hook = Hook::start_at(address, &["hook.default.svc"], allow).await;
    let chain = server().await;
    let mut served = webhook(&hook, "a.example.com");
    let service = json!({"namespace": "default", "name": "hook", "path": "/deep/er", "port": 8443});
    served["clientConfig"] = json!({"service": service, "caBundle": hook.ca_bundle});
    configure(&chain, VALIDATING, "c", &[served]).await;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook"},
        "spec": {"ports": [{"name": "https", "port": 8443}]}});
    let services = "/api/v1/namespaces/default/services";
    assert_eq!(call(&chain, "POST", services, Some(&service)).await.0, 201);
    let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "hook"},
        "subsets": [{"addresses": [{"ip": address}], "ports": [{"name": "https", "port": hook.port}]}]});
    let (code, made) = call(&chain, "POST", "/api/v1/namespaces/default/endpoints", Some(&endpoints)).await;
    assert_eq!(code, 201, "{made}");
    let (code, made) = call(&chain, "POST", MAPS, Some(&config_map("m"))).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(hook.take_paths(), ["/deep/er?timeout=10s"]);
}

#[tokio::test]
async fn external_names_lead_to_webhooks() {
    let hook = Hook::start(&["outside.default.svc"], allow).await;
    let chain = server().await;
    let mut served = webhook(&hook, "a.example.com");
    let service = json!({"namespace": "default", "name": "outside", "port": hook.port});
    served["clientConfig"] = json!({"service": service, "caBundle": hook.ca_bundle});
    configure(&chain, VALIDATING, "c", &[served]).await;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "outside"},
        "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}});
    assert_eq!(call(&chain, "POST", "/api/v1/namespaces/default/services", Some(&service)).await.0, 201);
    let (code, made) = call(&chain, "POST", MAPS, Some(&config_map("m"))).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(hook.take_paths(), ["/?timeout=10s"]);
}
