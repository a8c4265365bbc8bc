//! Mutating webhooks.

use serde_json::json;

use super::*;

/// Appends a letter to `data.trail`.
fn append(letter: &str) -> impl Fn(&Value) -> Reply + Send + Sync + 'static {
    let letter = letter.to_owned();
    move |review| {
        let trail = review["request"]["object"]["data"]["trail"].as_str().unwrap_or_default();
        patch(review, &json!([{"op": "add", "path": "/data/trail", "value": format!("{trail}{letter}")}]))
    }
}

#[tokio::test]
async fn webhooks_run_by_configuration_then_index() {
    let (a, b, c) = (
        Hook::start(&[], append("a")).await,
        Hook::start(&[], append("b")).await,
        Hook::start(&[], append("c")).await,
    );
    let chain = server().await;
    configure(&chain, MUTATING, "second", &[webhook(&c, "c.example.com")]).await;
    configure(&chain, MUTATING, "first", &[webhook(&b, "b.example.com"), webhook(&a, "a.example.com")]).await;
    let (code, made) = call(&chain, "POST", MAPS, Some(&config_map("m"))).await;
    assert_eq!((code, &made["data"]), (201, &json!({"a": "b", "trail": "bac"})));
    // Nothing that a webhook sets has a manager.
    assert_eq!(made["metadata"]["managedFields"][0]["fieldsV1"], json!({"f:data": {".": {}, "f:a": {}}}));
}

#[tokio::test]
async fn webhook_is_called_again_after_a_later_change_if_it_asks() {
    let (first, second) = (Hook::start(&[], append("a")).await, Hook::start(&[], append("b")).await);
    let chain = server().await;
    let mut asking = webhook(&first, "a.example.com");
    asking["reinvocationPolicy"] = "IfNeeded".into();
    configure(&chain, MUTATING, "c", &[asking.clone(), webhook(&second, "b.example.com")]).await;
    let (_, made) = call(&chain, "POST", MAPS, Some(&config_map("m"))).await;
    assert_eq!(made["data"]["trail"], "aba", "once more, and only the one that asks");
    assert_eq!((first.calls(), second.calls()), (2, 1));
    // The last webhook changes the object, and nothing changes it afterwards.
    assert_eq!(call(&chain, "DELETE", &format!("{MUTATING}/c"), None).await.0, 200);
    configure(&chain, MUTATING, "c", &[webhook(&second, "b.example.com"), asking]).await;
    let (_, made) = call(&chain, "POST", MAPS, Some(&config_map("n"))).await;
    assert_eq!(made["data"]["trail"], "ba");
}

#[tokio::test]
async fn patched_object_is_defaulted_pruned_and_validated() {
    let hook = Hook::start(&[], allow).await;
    let chain = server().await;
    let mut services = webhook(&hook, "a.example.com");
    services["rules"] = json!([rule("", "v1", "services"), rule("", "v1", "configmaps")]);
    configure(&chain, MUTATING, "c", &[services]).await;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
        "spec": {"ports": [{"port": 80}]}});
    let path = "/api/v1/namespaces/default/services";
    hook.answers(|review| {
        let port = json!({"name": "b", "port": 81});
        patch(
            review,
            &json!([
                {"op": "replace", "path": "/spec/ports/0/name", "value": "a"},
                {"op": "add", "path": "/spec/ports/-", "value": port},
                {"op": "add", "path": "/spec/invented", "value": 1},
            ]),
        )
    });
    let (code, made) = call(&chain, "POST", path, Some(&service)).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["spec"]["ports"][1]["protocol"], "TCP", "defaults are applied");
    assert_eq!(made["spec"].get("invented"), None);

    hook.answers(|review| patch(review, &json!([{"op": "replace", "path": "/data/a", "value": 7}])));
    let (code, failed) = call(&chain, "POST", MAPS, Some(&config_map("m"))).await;
    assert_eq!(code, 500);
    assert_eq!(
        failed["message"],
        "Internal error occurred: json: cannot unmarshal number into Go struct field ConfigMap.data of type string"
    );
    hook.answers(|review| {
        patch(review, &json!([{"op": "replace", "path": "/metadata/name", "value": "No"}]))
    });
    let (code, failed) = call(&chain, "POST", MAPS, Some(&config_map("m"))).await;
    assert_eq!((code, &failed["reason"]), (422, &json!("Invalid")), "{failed}");
    hook.answers(|review| patch(review, &json!([{"op": "remove", "path": "/data/none"}])));
    let (code, failed) = call(&chain, "POST", MAPS, Some(&config_map("m"))).await;
    assert_eq!(code, 500);
    assert!(failed["message"].as_str().unwrap().starts_with("Internal error occurred: "), "{failed}");
    hook.answers(|review| patch(review, &json!([{"op": "replace", "path": "/kind", "value": "Secret"}])));
    assert_eq!(call(&chain, "POST", MAPS, Some(&config_map("m"))).await.0, 500);
    assert_eq!(call(&chain, "GET", &format!("{MAPS}/m"), None).await.0, 404, "nothing was stored");
}

#[tokio::test]
async fn patched_object_stays_the_one_that_was_asked_for() {
    let hook = Hook::start(&[], allow).await;
    let chain = server().await;
    assert_eq!(call(&chain, "POST", MAPS, Some(&config_map("there"))).await.0, 201);
    let there = format!("{MAPS}/there");
    let before = call(&chain, "GET", &there, None).await.1;
    configure(&chain, MUTATING, "c", &[webhook(&hook, "a.example.com")]).await;
    let answer = |path: &'static str, value: &'static str| {
        hook.answers(move |review| patch(review, &json!([{"op": "add", "path": path, "value": value}])));
    };
    answer("/metadata/namespace", "kube-system");
    let change = json!({"data": {"a": "c"}});
    for (method, path, body) in [
        ("POST", MAPS, config_map("m")),
        ("PUT", &there, config_map("there")),
        ("PATCH", &there, change.clone()),
    ] {
        let (code, failed) = call(&chain, method, path, Some(&body)).await;
        assert_eq!(
            (code, failed["message"].as_str().unwrap()),
            (400, "the namespace of the provided object does not match the namespace sent on the request"),
            "{method}"
        );
    }
    for (field, code) in [("name", 422), ("uid", 422), ("resourceVersion", 409)] {
        let path: &'static str = match field {
            "name" => "/metadata/name",
            "uid" => "/metadata/uid",
            _ => "/metadata/resourceVersion",
        };
        answer(path, "1");
        assert_eq!(call(&chain, "PATCH", &there, Some(&change)).await.0, code, "{field}");
    }
    // Removed, it is the request's.
    hook.answers(|review| patch(review, &json!([{"op": "remove", "path": "/metadata/namespace"}])));
    let (code, made) = call(&chain, "POST", MAPS, Some(&config_map("m"))).await;
    assert_eq!((code, &made["metadata"]["namespace"]), (201, &json!("default")), "{made}");
    assert_eq!(call(&chain, "GET", &there, None).await.1, before);
    let elsewhere = "/api/v1/namespaces/kube-system/configmaps";
    for name in ["m", "there"] {
        assert_eq!(call(&chain, "GET", &format!("{elsewhere}/{name}"), None).await.0, 404);
    }
}

#[tokio::test]
async fn deletions_cannot_be_patched() {
    let hook = Hook::start(&[], allow).await;
    let chain = server().await;
    assert_eq!(call(&chain, "POST", MAPS, Some(&config_map("m"))).await.0, 201);
    configure(&chain, MUTATING, "c", &[webhook(&hook, "a.example.com")]).await;
    hook.answers(|review| patch(review, &json!([{"op": "add", "path": "/x", "value": 1}])));
    let (code, failed) = call(&chain, "DELETE", &format!("{MAPS}/m"), None).await;
    assert_eq!(code, 500);
    assert_eq!(
        failed["message"],
        "Internal error occurred: admission webhook \"a.example.com\" attempted to modify the object, which is not \
         supported for this operation"
    );
    hook.answers(|review| patch(review, &json!([])));
    assert_eq!(
        call(&chain, "DELETE", &format!("{MAPS}/m"), None).await.0,
        200,
        "an empty patch changes nothing"
    );
}
