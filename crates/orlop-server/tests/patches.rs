//! Patch types: constraints and error messages.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use http::header::WARNING;
use orlop_server::chain::Chain;
use serde_json::{Value, json};
use support::{apply, ask, call, create, get, server, whole};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// Sends a patch. Returns the code, the warnings and the object.
async fn patch(chain: &Chain, path: &str, media_type: &str, body: &str) -> (u16, Vec<String>, Value) {
    let headers = [("content-type", media_type)];
    let (code, headers, answer) = whole(ask(chain, "PATCH", path, &headers, body.to_owned()).await).await;
    let warnings = headers.get_all(WARNING).iter().map(|warning| warning.to_str().unwrap());
    let told = warnings.map(|text| serde_json::from_str(text.trim_start_matches("299 - ")).unwrap());
    (code, told.collect(), serde_json::from_slice(&answer).unwrap())
}

async fn with_deployment() -> Chain {
    let (chain, _store) = server().await;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "nginx", "image": "i"}]}});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    create(&chain, DEPLOYMENTS, &deployment).await;
    chain
}

#[tokio::test]
async fn patch_warnings_precede_object_warnings() {
    let chain = with_deployment().await;
    let merged = r#"{"spec": {"unknown": "1", "twice": "1", "twice": "2", "paused": true, "paused": false,
        "template": {"spec": {"containers": [{"name": "nginx", "image": "j", "imagePullPolicy": "Always",
            "imagePullPolicy": "Never", "nested": 1}]}}}}"#;
    let operations = r#"[{"op": "add", "path": "/spec/unknown", "value": "1", "foo": "bar"},
        {"op": "add", "path": "/spec/second", "path": "/spec/third", "value": "1"},
        {"op": "add", "path": "/spec/paused", "value": true}]"#;
    let of_merged = [
        "duplicate field \"spec.twice\"",
        "duplicate field \"spec.paused\"",
        "duplicate field \"spec.template.spec.containers[0].imagePullPolicy\"",
        "unknown field \"spec.template.spec.containers[0].nested\"",
        "unknown field \"spec.twice\"",
        "unknown field \"spec.unknown\"",
    ];
    let of_operations = [
        "json patch unknown field \"[0].foo\"",
        "json patch duplicate field \"[1].path\"",
        "unknown field \"spec.third\"",
        "unknown field \"spec.unknown\"",
    ];
    for (media_type, body, expected) in
        [(MERGE, merged, &of_merged[..]), (STRATEGIC, merged, &of_merged), (JSON, operations, &of_operations)]
    {
        let path = |validation: &str| format!("{DEPLOYMENTS}/d?dryRun=All&fieldValidation={validation}");
        let (code, _, refused) = patch(&chain, &path("Strict"), media_type, body).await;
        assert_eq!((code, refused["reason"].as_str()), (422, Some("Invalid")), "{media_type} {refused}");
        let message = refused["message"].as_str().unwrap();
        let told = format!("strict decoding error: {}", expected.join(", "));
        assert!(message.ends_with(&told), "{media_type} {message}");
        let (code, warnings, _) = patch(&chain, &path("Warn"), media_type, body).await;
        assert_eq!(code, 200, "{media_type}");
        assert_eq!(warnings, expected, "{media_type}");
        let (code, warnings, _) = patch(&chain, &path("Ignore"), media_type, body).await;
        assert_eq!((code, warnings), (200, Vec::new()), "{media_type}");
    }
}

#[tokio::test]
async fn patch_cannot_change_name_namespace_or_kind() {
    let (chain, _store) = server().await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "1"}});
    create(&chain, MAPS, &map).await;
    let path = format!("{MAPS}/m");
    let (_, before) = get(&chain, &path).await;
    // Controllers that adopt or orphan objects ignore Invalid: another object has the name by then.
    let name = "the name of the object (n) does not match the name on the URL (m)";
    let namespace = "the namespace of the provided object does not match the namespace sent on the request";
    let other = "ConfigMap \"m\" is invalid: metadata.uid: Invalid value: \"z\": field is immutable";
    let stale = "Operation cannot be fulfilled on configmaps \"m\": the object has been modified; please apply \
                 your changes to the latest version and try again";
    for (change, code, message) in [
        (json!({"name": "n"}), 400, name),
        (json!({"namespace": "other"}), 400, namespace),
        (json!({"uid": "z"}), 422, other),
        (json!({"resourceVersion": "1"}), 409, stale),
    ] {
        let body = json!({"metadata": change, "data": {"a": "2"}}).to_string();
        for media_type in [MERGE, STRATEGIC] {
            let (answered, _, refused) = patch(&chain, &path, media_type, &body).await;
            assert_eq!((answered, refused["message"].as_str()), (code, Some(message)), "{media_type} {body}");
        }
    }
    for field in ["kind", "apiVersion"] {
        let body = json!({field: "other", "data": {"a": "2"}}).to_string();
        let (code, _, refused) = patch(&chain, &path, MERGE, &body).await;
        assert_eq!((code, refused["reason"].as_str()), (422, Some("Invalid")), "{refused}");
    }
    let (code, _, refused) = patch(&chain, &format!("{path}?force=true"), MERGE, "{}").await;
    assert_eq!(code, 422);
    let message = refused["message"].as_str().unwrap();
    assert!(message.ends_with("force: Forbidden: may not be specified for non-apply patch"), "{message}");
    for media_type in [JSON, MERGE, STRATEGIC] {
        let body = if media_type == JSON { "[]" } else { "{}" };
        let (code, _, refused) = patch(&chain, &format!("{MAPS}/none"), media_type, body).await;
        assert_eq!((code, refused["message"].as_str()), (404, Some("configmaps \"none\" not found")));
    }
    assert_eq!(get(&chain, &path).await.1, before, "what is refused leaves no trace");
}

#[tokio::test]
async fn apply_must_match_the_path() {
    let (chain, _store) = server().await;
    let path = format!("{MAPS}/m?fieldManager=one");
    let of = |change: Value| {
        let mut map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}});
        map.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        map
    };
    let missing = "Operation cannot be fulfilled on configmaps \"m\": uid mismatch: the provided object specified \
                   uid z, and no existing object was found";
    for (change, code, message) in [
        (json!({"apiVersion": "v2"}), 400, "invalid object type: /v2, Kind=ConfigMap"),
        (json!({"kind": "Secret"}), 400, "invalid object type: /v1, Kind=Secret"),
        (
            json!({"metadata": {"name": "n"}}),
            400,
            "the name of the object (n) does not match the name on the URL (m)",
        ),
        (
            json!({"metadata": {"managedFields": [{"manager": "x"}]}}),
            400,
            "metadata.managedFields must be nil",
        ),
        (json!({"metadata": {"name": "m", "uid": "z"}}), 409, missing),
    ] {
        let (answered, refused) = apply(&chain, &path, &of(change.clone())).await;
        assert_eq!((answered, refused["message"].as_str()), (code, Some(message)), "{change}");
    }
    for (body, message) in [
        ("", "invalid object type: /, Kind="),
        (
            "[1]",
            "error decoding patch: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array \
                 into Go value of type map[string]interface {}",
        ),
    ] {
        let (code, _, refused) = patch(&chain, &path, "application/apply-patch+yaml", body).await;
        assert_eq!((code, refused["message"].as_str()), (400, Some(message)), "{body}");
    }
    let (code, _, refused) = patch(&chain, &path, "application/apply-patch+yaml", "a: [").await;
    let message = refused["message"].as_str().unwrap();
    assert!(
        code == 400 && message.starts_with("error decoding patch: error converting YAML to JSON: yaml: "),
        "{message}"
    );
    let (code, _, refused) = patch(&chain, &path, "application/apply-patch+cbor", "").await;
    assert_eq!((code, refused["reason"].as_str()), (415, Some("UnsupportedMediaType")), "{refused}");
    assert_eq!(get(&chain, &format!("{MAPS}/m")).await.0, 404, "what is refused leaves no trace");
    assert_eq!(call(&chain, "PATCH", &format!("{MAPS}/m"), Some(&json!({}))).await.0, 404);

    let (code, object) = apply(&chain, &path, &of(json!({"metadata": {"name": "m"}}))).await;
    assert_eq!((code, object["metadata"]["name"].as_str()), (201, Some("m")));
    let (code, refused) =
        apply(&chain, &path, &of(json!({"data": {"a": "2"}, "metadata": {"uid": "z"}}))).await;
    assert_eq!((code, refused["reason"].as_str()), (422, Some("Invalid")), "{refused}");
}
