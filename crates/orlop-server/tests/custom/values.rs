//! Custom resources: boundary values, warnings, discovery, tables.

use http::Method;
use serde_json::{Value, json};

use crate::server::{DEFINITIONS, Server, path, version, widget, widgets};

/// Serves widgets whose spec has these properties.
async fn serving(spec: Value) -> Server {
    let server = Server::start().await;
    server.create(DEFINITIONS, &widgets(json!([version("v1", true, spec)]))).await.ok();
    server
}

#[tokio::test]
async fn boundary_value_errors_match_kubernetes() {
    let server = serving(json!({
        "size": {"type": "integer"},
        "share": {"x-kubernetes-int-or-string": true},
        "names": {"type": "array", "items": {"type": "string"}},
        "maybe": {"type": "array", "items": {"type": "string", "nullable": true}},
        "labels": {"type": "object", "additionalProperties": {"type": "integer"}},
        "small": {"type": "integer", "format": "int32"},
        "when": {"type": "string", "format": "date-time"},
        "one": {"type": "string", "enum": ["a", "b"]},
    }))
    .await;
    let whole =
        server.create(&path("v1"), &widget("v1", "a", json!({"size": 1.0, "share": "5%"}))).await.ok();
    assert_eq!(whole["spec"], json!({"size": 1, "share": "5%"}), "a whole number is an integer");
    let kept = server.create(&path("v1"), &widget("v1", "b", json!({"maybe": [null, "x"]}))).await.ok();
    assert_eq!(kept["spec"]["maybe"], json!([null, "x"]));
    for (spec, told) in [
        (
            json!({"size": 1.5}),
            "spec.size: Invalid value: \"number\": spec.size in body must be of type integer: \"number\"",
        ),
        (
            json!({"share": true}),
            "spec.share: Invalid value: \"boolean\": spec.share in body must be of type integer,string: \"boolean\"",
        ),
        (
            json!({"names": ["a", null]}),
            "spec.names[1]: Invalid value: \"null\": spec.names[1] in body must be of type string: \"null\"",
        ),
        (
            json!({"labels": {"a": "b"}}),
            "spec.labels.a: Invalid value: \"string\": spec.labels.a in body must be of type integer: \"string\"",
        ),
        (
            json!({"small": 3_000_000_000_i64}),
            "<nil>: Invalid value: \"\": Checked value must be of type integer with format int32 in spec.small",
        ),
        (
            json!({"when": "today"}),
            "spec.when: Invalid value: \"today\": spec.when in body must be of type date-time: \"today\"",
        ),
        (json!({"one": "c"}), "spec.one: Unsupported value: \"c\": supported values: \"a\", \"b\""),
    ] {
        let message = server.create(&path("v1"), &widget("v1", "c", spec.clone())).await.refused(422);
        let message = message.strip_prefix("Widget.example.com \"c\" is invalid: ").unwrap_or(&message);
        assert!(message.trim_start_matches("[").starts_with(told), "{spec}: {message}");
    }
}

#[tokio::test]
async fn surprising_definitions_get_warnings() {
    let server = Server::start().await;
    let made = widgets(json!([version("v1", true, json!({"color": {"type": "string", "format": "color"}}))]));
    let created = server.create(DEFINITIONS, &made).await;
    assert_eq!(created.warnings, ["299 - \"unrecognized format \\\"color\\\"\""]);
    created.ok();
    let mut held = widget("v1", "a", json!({}));
    held["metadata"]["finalizers"] = json!(["hold.example.com", "example.com/hold"]);
    let created = server.create(&path("v1"), &held).await;
    assert_eq!(
        created.warnings,
        [
            "299 - \"metadata.finalizers: \\\"hold.example.com\\\": prefer a domain-qualified finalizer name including \
          a path (/) to avoid accidental conflicts with other finalizer writers\""
        ]
    );
    // Duplicate keys of a patch are reported like those of a body.
    let name = format!("{}/a?fieldValidation=Strict", path("v1"));
    let twice = r#"{"spec": {"color": "a", "color": "b"}}"#.to_owned();
    let request = http::Request::patch(name).header("Content-Type", "application/merge-patch+json");
    let refused = server.send_body(request, twice).await;
    let message = refused["message"].as_str().unwrap();
    assert!(message.ends_with("strict decoding error: duplicate field \"spec.color\""), "{message}");
}

#[tokio::test]
async fn discovery_lists_verbs_in_kubernetes_order() {
    let server = Server::start().await;
    let mut made = widgets(json!([version("v1", true, json!({"n": {"type": "integer"}}))]));
    made["spec"]["names"]["shortNames"] = json!(["wg"]);
    made["spec"]["names"]["categories"] = json!(["all"]);
    made["spec"]["versions"][0]["subresources"] = json!({"status": {}, "scale": {
        "specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}});
    server.create(DEFINITIONS, &made).await.ok();
    let resources = server.get("/apis/example.com/v1").await.ok()["resources"].clone();
    let found: Vec<(&str, Vec<&str>)> = resources
        .as_array()
        .unwrap()
        .iter()
        .map(|resource| {
            let verbs = resource["verbs"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
            (resource["name"].as_str().unwrap(), verbs)
        })
        .collect();
    let all = vec!["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
    let some = vec!["get", "patch", "update"];
    assert_eq!(found, [("widgets", all), ("widgets/status", some.clone()), ("widgets/scale", some)]);
    assert_eq!((&resources[0]["shortNames"], &resources[0]["categories"]), (&json!(["wg"]), &json!(["all"])));
    assert_eq!((&resources[2]["group"], &resources[2]["kind"]), (&json!("autoscaling"), &json!("Scale")));
    server.create(&path("v1"), &widget("v1", "a", json!({}))).await.ok();
    let request =
        http::Request::get(path("v1")).header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let columns = server.send(request).await["columnDefinitions"].clone();
    assert_eq!(
        (&columns[0]["name"], &columns[1]["name"], columns.get(2)),
        (&json!("Name"), &json!("Age"), None)
    );
}

#[tokio::test]
async fn dry_run_apply_stores_nothing() {
    let server = serving(json!({"size": {"type": "integer"}})).await;
    let name = format!("{}/a", path("v1"));
    let tried = server
        .apply(&format!("{name}?fieldManager=m&dryRun=All"), &widget("v1", "a", json!({"size": 1})))
        .await;
    assert_eq!((tried.code, &tried.body["spec"]["size"]), (201, &json!(1)));
    assert_eq!(server.get(&name).await.code, 404);
    server.apply(&format!("{name}?fieldManager=m"), &widget("v1", "a", json!({"size": 1}))).await.ok();
    let tried = server
        .apply(&format!("{name}?fieldManager=m&dryRun=All"), &widget("v1", "a", json!({"size": 2})))
        .await;
    assert_eq!((tried.code, &tried.body["spec"]["size"]), (200, &json!(2)));
    let other = format!("{name}?fieldManager=n&dryRun=All");
    let conflict = server.apply(&other, &widget("v1", "a", json!({"size": 2}))).await.refused(409);
    assert_eq!(conflict, "Apply failed with 1 conflict: conflict with \"m\": .spec.size");
    assert_eq!(server.get(&name).await.ok()["spec"]["size"], 1);
    let elsewhere = format!("{}/a?fieldManager=m", path("v1").replace("default", "nowhere"));
    let message = server.apply(&elsewhere, &widget("v1", "a", json!({}))).await.refused(404);
    assert_eq!(message, "namespaces \"nowhere\" not found");
    let status = format!("{}/b/status?fieldManager=m", path("v1"));
    assert_eq!(server.apply(&status, &widget("v1", "b", json!({}))).await.code, 404);
    let test = json!([{"op": "test", "path": "/spec/size", "value": 3}]);
    assert_eq!(server.call(Method::PATCH, &name, "application/json-patch+json", &test).await.code, 422);
}

#[tokio::test]
async fn cel_rules_have_time_zones() {
    let rule = json!([{"rule": "self.getHours('Europe/Berlin') >= 6", "message": "too early in Berlin"}]);
    let server = serving(
        json!({"opens": {"type": "string", "format": "date-time", "x-kubernetes-validations": rule}}),
    )
    .await;
    // UTC+1 in winter, UTC+2 in summer.
    for (name, opens, early) in [
        ("a", "2030-01-01T04:59:00Z", true),
        ("b", "2030-01-01T05:00:00Z", false),
        ("c", "2030-07-01T03:59:00Z", true),
        ("d", "2030-07-01T04:00:00Z", false),
    ] {
        let created = server.create(&path("v1"), &widget("v1", name, json!({"opens": opens}))).await;
        if early {
            let told = format!("spec.opens: Invalid value: \"{opens}\": too early in Berlin");
            assert_eq!(created.refused(422), format!("Widget.example.com \"{name}\" is invalid: {told}"));
        } else {
            created.ok();
        }
    }
}
