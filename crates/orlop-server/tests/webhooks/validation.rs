//! Validating webhooks.

use std::sync::Arc;

use serde_json::json;
use tokio::sync::Barrier;

use super::*;

#[tokio::test]
async fn configuration_is_in_force_when_its_write_is_answered() {
    let hook = Hook::start(&[], |review| response(review, json!({"allowed": false}))).await;
    let chain = server().await;
    for round in 0..10 {
        let name = format!("m{round}");
        assert_eq!(call(&chain, "POST", MAPS, Some(&config_map(&name))).await.0, 201);
        configure(&chain, VALIDATING, "c", &[webhook(&hook, "deny.example.com")]).await;
        let (code, denied) = call(&chain, "PUT", &format!("{MAPS}/{name}"), Some(&config_map(&name))).await;
        assert_eq!(
            (code, denied["message"].as_str().unwrap()),
            (400, "admission webhook \"deny.example.com\" denied the request without explanation")
        );
        assert_eq!(call(&chain, "DELETE", &format!("{VALIDATING}/c"), None).await.0, 200);
    }
}

#[tokio::test]
async fn review_tells_who_does_what() {
    let hook = Hook::start(&[], allow).await;
    let chain = server().await;
    configure(&chain, VALIDATING, "c", &[webhook(&hook, "a.example.com")]).await;
    let path = format!("{MAPS}?fieldManager=me&dryRun=All");
    assert_eq!(call(&chain, "POST", &path, Some(&config_map("m"))).await.0, 201);
    let review = hook.take_reviews().remove(0);
    assert_eq!(
        (&review["apiVersion"], &review["kind"]),
        (&json!("admission.k8s.io/v1"), &json!("AdmissionReview"))
    );
    let mut request = review["request"].clone();
    assert_eq!(request["object"]["metadata"]["name"], "m");
    assert_eq!(request["uid"].as_str().unwrap().len(), 36);
    request["uid"] = "u".into();
    request["object"] = json!({});
    let kind = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
    let resource = json!({"group": "", "version": "v1", "resource": "configmaps"});
    assert_eq!(
        request,
        json!({
            "uid": "u", "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
            "name": "m", "namespace": "default", "operation": "CREATE",
            "userInfo": {"username": "admin", "groups": ["system:masters", "system:authenticated"]},
            "object": {}, "oldObject": null, "dryRun": true,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me",
                "dryRun": ["All"]},
        })
    );
    assert_eq!(hook.take_paths(), ["/admit?timeout=10s"]);

    assert_eq!(call(&chain, "POST", MAPS, Some(&config_map("m"))).await.0, 201);
    assert_eq!(call(&chain, "PATCH", &format!("{MAPS}/m"), Some(&json!({"data": {"a": "c"}}))).await.0, 200);
    assert_eq!(call(&chain, "DELETE", &format!("{MAPS}/m"), None).await.0, 200);
    let reviews = hook.take_reviews();
    let told: Vec<[&Value; 4]> = reviews
        .iter()
        .map(|review| &review["request"])
        .map(|it| {
            [
                &it["operation"],
                &it["options"]["kind"],
                &it["object"]["data"]["a"],
                &it["oldObject"]["data"]["a"],
            ]
        })
        .collect();
    let null = json!(null);
    assert_eq!(
        told,
        [
            [&json!("CREATE"), &json!("CreateOptions"), &json!("b"), &null],
            [&json!("UPDATE"), &json!("PatchOptions"), &json!("c"), &json!("b")],
            [&json!("DELETE"), &json!("DeleteOptions"), &null, &json!("c")],
        ]
    );
    assert_eq!(hook.connections(), 1, "the connection is reused");
}

#[tokio::test]
async fn denial_has_the_webhooks_code_reason_and_message() {
    let hook = Hook::start(&[], |review| {
        let status = json!({"code": 403, "reason": "NoTea", "message": "no tea",
            "details": {"causes": [{"field": "spec.tea", "reason": "Empty"}]}});
        response(review, json!({"allowed": false, "status": status, "warnings": ["drink coffee"]}))
    })
    .await;
    let chain = server().await;
    configure(&chain, VALIDATING, "c", &[webhook(&hook, "tea.example.com")]).await;
    let (code, status, warnings) = send(&chain, "POST", MAPS, &config_map("m")).await;
    assert_eq!(code, 403);
    assert_eq!(
        status,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "admission webhook \"tea.example.com\" denied the request: no tea", "reason": "NoTea",
            "details": {"causes": [{"reason": "Empty", "field": "spec.tea"}]}, "code": 403})
    );
    assert_eq!(warnings, ["299 - \"drink coffee\""]);
    assert_eq!(call(&chain, "GET", &format!("{MAPS}/m"), None).await.0, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_are_called_at_once() {
    // Each answers only once all three have been called.
    let barrier = Arc::new(Barrier::new(3));
    let hook = Hook::start(&[], move |review| {
        let barrier = barrier.clone();
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(barrier.wait()));
        allow(review)
    })
    .await;
    let chain = server().await;
    let webhooks = ["a.example.com", "b.example.com", "c.example.com"].map(|name| webhook(&hook, name));
    configure(&chain, VALIDATING, "c", &webhooks).await;
    let created = tokio::time::timeout(std::time::Duration::from_secs(8), async {
        call(&chain, "POST", MAPS, Some(&config_map("m"))).await.0
    });
    assert_eq!(created.await.expect("they do not wait for each other"), 201);
    assert_eq!(hook.calls(), 3);
}

#[tokio::test]
async fn dry_run_is_refused_by_webhooks_with_side_effects() {
    let hook = Hook::start(&[], allow).await;
    let chain = server().await;
    configure(&chain, VALIDATING, "c", &[webhook(&hook, "a.example.com")]).await;
    let dry_run = format!("{MAPS}?dryRun=All");
    assert_eq!(call(&chain, "POST", &dry_run, Some(&config_map("m"))).await.0, 201);
    let some = json!({"webhooks": [{"name": "a.example.com", "sideEffects": "Some"}]});
    let (code, refused) = call(&chain, "PATCH", &format!("{VALIDATING}/c"), Some(&some)).await;
    assert_eq!(code, 422, "{refused}");
}
