//! Decoding of bodies.

use serde_json::{Value, json};

use crate::{
    MAPS, refused,
    support::{ask, call, config_map, create, get, server, version, whole},
};

#[tokio::test]
async fn unknown_metadata_fields_are_dropped_with_a_warning() {
    let (chain, _store) = server().await;
    let mut map = config_map("a", &json!({}));
    map["metadata"]["extra"] = 1.into();
    map["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u", "more": true}]);
    let strict = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: \
        unknown field \"metadata.extra\", unknown field \"metadata.ownerReferences[0].more\"";
    refused(&chain, "POST", &format!("{MAPS}?fieldValidation=Strict"), Some(&map), 400, strict).await;
    let headers = [("content-type", "application/json")];
    let (code, headers, body) = whole(ask(&chain, "POST", MAPS, &headers, map.to_string()).await).await;
    let warnings: Vec<_> = headers.get_all("warning").iter().map(|it| it.to_str().unwrap()).collect();
    assert_eq!(
        (code, warnings.join(" ")),
        (
            201,
            r#"299 - "unknown field \"metadata.extra\"" 299 - "unknown field \"metadata.ownerReferences[0].more\"""#
                .to_owned()
        )
    );
    let created: Value = serde_json::from_slice(&body).unwrap();
    assert!(created["metadata"].get("extra").is_none(), "{created}");
    let patch = json!({"metadata": {"extra": 1}});
    let (code, patched) = call(&chain, "PATCH", &format!("{MAPS}/a"), Some(&patch)).await;
    assert_eq!((code, patched["metadata"].get("extra")), (200, None), "{patched}");
    assert_eq!(version(&patched), version(&created), "nothing that there is was changed");
}

#[tokio::test]
async fn empty_metadata_fields_are_omitted() {
    let (chain, _store) = server().await;
    let mut map = config_map("a", &json!({}));
    map["data"] = json!({});
    map["metadata"]["annotations"] = json!({});
    let (code, created) = call(&chain, "POST", MAPS, Some(&map)).await;
    assert_eq!((code, created.get("data")), (201, None), "{created}");
    assert!(created["metadata"].get("managedFields").is_none(), "nobody owns what is not there: {created}");

    // A null value decodes to Go's zero value.
    map["metadata"]["name"] = "b".into();
    map["metadata"]["labels"] = json!({"l": null});
    map["data"] = json!({"k": null});
    create(&chain, MAPS, &map).await;
    let (_, stored) = get(&chain, &format!("{MAPS}/b")).await;
    let values = (&stored["data"], &stored["metadata"]["labels"]);
    assert_eq!(values, (&json!({"k": ""}), &json!({"l": ""})));

    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let mut deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    let first = create(&chain, deployments, &deployment).await;
    for (field, empty) in [("nodeSelector", json!({})), ("tolerations", json!([])), ("volumes", json!([]))] {
        deployment["spec"]["template"]["spec"][field] = empty;
    }
    deployment["spec"]["template"]["metadata"]["annotations"] = json!({});
    let (code, replaced) = call(&chain, "PUT", &format!("{deployments}/d"), Some(&deployment)).await;
    let generation = &replaced["metadata"]["generation"];
    assert_eq!((code, generation, version(&replaced)), (200, &json!(1), first), "nothing was changed");
}

#[tokio::test]
async fn body_of_another_kind_error_matches_kubernetes() {
    let (chain, _store) = server().await;
    let unknown = |kind: &str, in_version: &str, version: &str| {
        format!(
            "{kind} in version \"{in_version}\" cannot be handled as a ConfigMap: no kind \"{kind}\" is registered \
             for version \"{version}\" in scheme \"pkg/api/legacyscheme/scheme.go:30\""
        )
    };
    for (api_version, kind, message) in [
        ("v1", "Zork", unknown("Zork", "v1", "v1")),
        ("v1", "configmap", unknown("configmap", "v1", "v1")),
        ("apps/v1", "ConfigMap", unknown("ConfigMap", "v1", "apps/v1")),
        (
            "v1",
            "Secret",
            "Secret in version \"v1\" cannot be handled as a ConfigMap: converting (Secret) to (ConfigMap): \
             unknown conversion"
                .to_owned(),
        ),
    ] {
        let body = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}});
        refused(&chain, "POST", MAPS, Some(&body), 400, &message).await;
    }
    let autoscalers = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    let body = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"});
    let message = "the API version in the data (autoscaling/v2) does not match the expected API version (autoscaling/v1)";
    refused(&chain, "POST", autoscalers, Some(&body), 400, message).await;
    let body = json!({"apiVersion": "a/b/c", "kind": "ConfigMap"});
    let message = "the object provided is unrecognized (must be of type ConfigMap): unexpected GroupVersion \
        string: a/b/c ({\"apiVersion\":\"a/b/c\",\"kind\":\" ...)";
    refused(&chain, "POST", MAPS, Some(&body), 400, message).await;
    let message =
        "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required";
    refused(&chain, "POST", MAPS, Some(&Value::Null), 422, message).await;
}

#[tokio::test]
async fn name_in_body_must_match_the_path() {
    let (chain, _store) = server().await;
    create(&chain, MAPS, &config_map("a", &json!({}))).await;
    let undeterminable = "the name of the object (a based on URL) was undeterminable: name must be provided";
    let nameless = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    refused(&chain, "PUT", &format!("{MAPS}/a"), Some(&nameless), 400, undeterminable).await;
    refused(&chain, "PATCH", &format!("{MAPS}/a"), Some(&json!({"metadata": null})), 400, undeterminable)
        .await;
    for (name, why) in [("..", "may not be '..'"), ("a%2525", "may not contain '%'")] {
        let decoded = name.replace("%25", "%");
        let message = format!("Name parameter invalid: {decoded:?}: {why}");
        refused(&chain, "GET", &format!("{MAPS}/{name}"), None, 400, &message).await;
    }
    let unknown = "the server could not find the requested resource";
    for path in
        [format!("{MAPS}/a/b"), format!("{MAPS}/a/b/c"), "/api/v1/namespaces/default/status/x".to_owned()]
    {
        refused(&chain, "GET", &path, None, 404, unknown).await;
    }
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "namespace": "m"}});
    let (code, created) = call(&chain, "POST", "/api/v1/namespaces", Some(&namespace)).await;
    assert_eq!((code, created["metadata"].get("namespace")), (201, None), "what is in no namespace says so");
    let (_, listed) = get(&chain, &format!("{MAPS}?fieldSelector==")).await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "a bare equals sign selects everything");
}

#[tokio::test]
async fn query_numbers_and_times_parse_as_in_go() {
    let (chain, _store) = server().await;
    for (query, message) in [
        ("limit=x", r#"strconv.ParseInt: parsing "x": invalid syntax"#),
        (
            "limit=99999999999999999999",
            r#"strconv.ParseInt: parsing "99999999999999999999": value out of range"#,
        ),
        ("timeout=x", r#"invalid timeout specified in the request URL - time: invalid duration "x""#),
        ("timeout=1", r#"invalid timeout specified in the request URL - time: missing unit in duration "1""#),
        (
            "timeout=1d",
            r#"invalid timeout specified in the request URL - time: unknown unit "d" in duration "1d""#,
        ),
        ("timeout=--1s", r#"invalid timeout specified in the request URL - time: invalid duration "--1s""#),
        (
            "timeout=9223372036s9223372036s",
            r#"invalid timeout specified in the request URL - time: invalid duration "9223372036s9223372036s""#,
        ),
    ] {
        refused(&chain, "GET", &format!("{MAPS}?{query}"), None, 400, message).await;
    }
}

#[tokio::test]
async fn legacy_watch_path_only_watches() {
    let (chain, _store) = server().await;
    let path = "/api/v1/watch/namespaces/default/configmaps";
    let message = "the server does not allow this method on the requested resource";
    refused(&chain, "POST", path, Some(&config_map("a", &json!({}))), 405, message).await;
    refused(&chain, "DELETE", path, None, 405, message).await;
    let message = "fieldSelector metadata.name doesn't match requested name";
    refused(&chain, "GET", &format!("{path}/a?fieldSelector=metadata.name=b"), None, 400, message).await;
}
