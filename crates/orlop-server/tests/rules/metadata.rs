//! Validation of metadata.

use serde_json::{Value, json};

use crate::{
    MAPS, refused,
    support::{call, config_map, create, get, server},
};

#[tokio::test]
async fn unqualified_finalizers_are_refused() {
    let (chain, _store) = server().await;
    let mut map = config_map("a", &json!({}));
    map["metadata"]["finalizers"] = json!(["example.com/x", "zork"]);
    let message = "ConfigMap \"a\" is invalid: metadata.finalizers[1]: Invalid value: \"zork\": name is neither a \
        standard finalizer name nor is it fully qualified";
    refused(&chain, "POST", MAPS, Some(&map), 422, message).await;
    map["metadata"]["finalizers"] = json!(["example.com/x", "orphan", "kubernetes"]);
    create(&chain, MAPS, &map).await;
    map["metadata"]["finalizers"] = json!(["zork"]);
    let message = message.replace("[1]", "[0]");
    refused(&chain, "PUT", &format!("{MAPS}/a"), Some(&map), 422, &message).await;

    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"},
        "spec": {"finalizers": ["example.com/x"]}});
    let (_, created) = call(&chain, "POST", "/api/v1/namespaces", Some(&namespace)).await;
    assert_eq!(created["spec"]["finalizers"], json!(["example.com/x", "kubernetes"]));
    let mut finalized = namespace;
    finalized["spec"]["finalizers"] = json!(["zork"]);
    let message = "Namespace \"n\" is invalid: spec.finalizers[0]: Invalid value: \"zork\": name is neither a \
        standard finalizer name nor is it fully qualified";
    refused(&chain, "PUT", "/api/v1/namespaces/n/finalize", Some(&finalized), 422, message).await;
    let phase = json!({"status": {"phase": "Zork"}});
    let message = "Namespace \"n\" is invalid: status.Phase: Invalid value: \"Zork\": may only be 'Active' if \
        `deletionTimestamp` is empty";
    refused(&chain, "PATCH", "/api/v1/namespaces/n/status", Some(&phase), 422, message).await;

    // Custom kinds take any finalizer.
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "Any_Name", "finalizers": ["zork"]}, "spec": {"minAvailable": 1}});
    create(&chain, "/apis/policy/v1/namespaces/default/poddisruptionbudgets", &budget).await;
}

#[tokio::test]
async fn creation_timestamp_is_immutable() {
    let (chain, _store) = server().await;
    create(&chain, MAPS, &config_map("a", &json!({}))).await;
    let path = format!("{MAPS}/a");
    let (_, before) = get(&chain, &path).await;
    let mut map = config_map("a", &json!({"new": "label"}));
    map["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z".into();
    map["metadata"]["generation"] = 7.into();
    let (code, after) = call(&chain, "PUT", &path, Some(&map)).await;
    assert_eq!(
        (code, &after["metadata"]["creationTimestamp"], after["metadata"].get("generation")),
        (200, &before["metadata"]["creationTimestamp"], None)
    );
    map["metadata"]["deletionTimestamp"] = "2020-01-01T00:00:00Z".into();
    let message = "ConfigMap \"a\" is invalid: metadata.deletionTimestamp: Invalid value: \"2020-01-01T00:00:00Z\": \
        field is immutable";
    refused(&chain, "PUT", &path, Some(&map), 422, message).await;
}

#[tokio::test]
async fn missing_resource_version_error_names_the_resource() {
    let (chain, _store) = server().await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}});
    create(&chain, leases, &lease).await;
    let (code, status) = call(&chain, "PUT", &format!("{leases}/l"), Some(&lease)).await;
    let message = "leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0: must be \
        specified for an update";
    assert_eq!((code, status["message"].as_str()), (422, Some(message)));
    assert_eq!(status["details"]["kind"], "leases");
}

#[tokio::test]
async fn negative_generation_is_ignored() {
    let (chain, _store) = server().await;
    let mut map = config_map("a", &json!({}));
    map["metadata"]["generation"] = Value::from(-1);
    let message = "ConfigMap \"a\" is invalid: metadata.generation: Invalid value: -1: must be greater than or equal to 0";
    refused(&chain, "POST", MAPS, Some(&map), 422, message).await;
}
