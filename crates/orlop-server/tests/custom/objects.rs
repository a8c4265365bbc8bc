//! Custom resources: writes, reads, selection.

use http::Method;
use serde_json::{Value, json};

use crate::server::{DEFINITIONS, Server, path, version, widget, widgets};

/// Serves widgets whose spec has these properties, changed by `change`.
async fn serving(spec: Value, change: impl FnOnce(&mut Value)) -> Server {
    let server = Server::start().await;
    let mut definition = widgets(json!([version("v1", true, spec)]));
    change(&mut definition["spec"]["versions"][0]);
    server.create(DEFINITIONS, &definition).await.ok();
    server
}

#[tokio::test]
async fn custom_resource_is_pruned_defaulted_then_validated() {
    let spec = json!({
        "size": {"type": "integer", "default": 3, "minimum": 1},
        "name": {"type": "string"},
        "kept": {"type": "string", "nullable": true},
        "ports": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"}},
        "template": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
    });
    let server = serving(spec, |version| {
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"] =
            json!([{"rule": "self.size < 100", "message": "too large"}]);
    })
    .await;
    let asked = widget(
        "v1",
        "a",
        json!({
            "size": null, "name": null, "kept": null, "unknown": 1,
            "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "nope": 1}, "spec": {"any": 1}},
        }),
    );
    let created = server.create(&path("v1"), &asked).await;
    assert_eq!(
        created.warnings,
        [
            "299 - \"unknown field \\\"spec.template.metadata.nope\\\"\"",
            "299 - \"unknown field \\\"spec.unknown\\\"\"",
        ]
    );
    assert_eq!(
        created.ok()["spec"],
        json!({
            "size": 3, "kept": null,
            "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"any": 1}},
        })
    );
    let strict = format!("{}?fieldValidation=Strict", path("v1"));
    let message = server.create(&strict, &widget("v1", "b", json!({"unknown": 1}))).await.refused(400);
    assert_eq!(
        message,
        "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: unknown field \"spec.unknown\""
    );
    let wrong = widget("v1", "B", json!({"size": 0, "name": 5, "ports": [1, 1]}));
    let message = server.create(&path("v1"), &wrong).await.refused(422);
    let places: Vec<usize> = [
        "metadata.name: Invalid value: \"B\"",
        "spec.name in body must be of type string",
        "spec.size in body should be greater than or equal to 1",
        "spec.ports[1]: Duplicate value: 1",
        "some validation rules were not checked",
    ]
    .iter()
    .map(|text| message.find(text).unwrap_or_else(|| panic!("{text} is not in {message}")))
    .collect();
    assert!(places.is_sorted(), "{message}");
    let message = server.create(&path("v1"), &widget("v1", "c", json!({"size": 100}))).await.refused(422);
    assert!(message.contains("too large"), "{message}");
    let mut malformed = widget("v1", "d", json!({}));
    malformed["metadata"]["labels"] = json!({"a": 1});
    let message = server.create(&path("v1"), &malformed).await.refused(400);
    assert!(
        message.contains("cannot unmarshal number into Go struct field ObjectMeta.labels of type string"),
        "{message}"
    );
}

#[tokio::test]
async fn unchanged_invalid_fields_are_ratcheted() {
    let server = serving(json!({"size": {"type": "integer"}, "note": {"type": "string"}}), |_| {}).await;
    server.create(&path("v1"), &widget("v1", "a", json!({"size": 50}))).await.ok();
    let narrow =
        version("v1", true, json!({"size": {"type": "integer", "maximum": 5}, "note": {"type": "string"}}));
    server
        .merge(&format!("{DEFINITIONS}/widgets.example.com"), json!({"spec": {"versions": [narrow]}}))
        .await
        .ok();
    let name = format!("{}/a", path("v1"));
    server.merge(&name, json!({"spec": {"note": "x"}})).await.ok();
    let message = server.merge(&name, json!({"spec": {"size": 51}})).await.refused(422);
    assert!(message.contains("spec.size in body should be less than or equal to 5"), "{message}");
}

#[tokio::test]
async fn status_and_spec_are_written_by_separate_endpoints() {
    let server = serving(json!({"size": {"type": "integer"}}), |version| {
        version["subresources"] = json!({"status": {}});
    })
    .await;
    let mut asked = widget("v1", "a", json!({"size": 1}));
    asked["status"] = json!({"ready": true});
    let created = server.create(&path("v1"), &asked).await.ok();
    assert_eq!((created.get("status"), &created["metadata"]["generation"]), (None, &json!(1)));
    let name = format!("{}/a", path("v1"));
    let both = json!({"spec": {"size": 2}, "status": {"ready": true}, "metadata": {"labels": {"a": "b"}}});
    let main = server.merge(&name, both.clone()).await.ok();
    assert_eq!((main.get("status"), &main["metadata"]["generation"]), (None, &json!(2)));
    let other = json!({"spec": {"size": 9}, "status": {"ready": true}, "metadata": {"labels": {"c": "d"}}});
    let status = server.merge(&format!("{name}/status"), other).await.ok();
    assert_eq!((&status["spec"]["size"], &status["status"]), (&json!(2), &json!({"ready": true})));
    assert_eq!(status["metadata"]["generation"], 2);
    assert_eq!(status["metadata"]["labels"], json!({"a": "b"}));

    // Without the subresource, status is an ordinary field.
    let plain = version("v1", true, json!({"size": {"type": "integer"}}));
    server
        .merge(&format!("{DEFINITIONS}/widgets.example.com"), json!({"spec": {"versions": [plain]}}))
        .await
        .ok();
    assert_eq!(server.get(&format!("{name}/status")).await.code, 404);
    let main = server.merge(&name, json!({"status": {"ready": false}})).await.ok();
    assert_eq!((&main["status"]["ready"], &main["metadata"]["generation"]), (&json!(false), &json!(3)));
}

#[tokio::test]
async fn scale_uses_the_paths_of_the_definition() {
    let server = serving(json!({"count": {"type": "integer"}}), |version| {
        version["subresources"] = json!({"status": {}, "scale": {
            "specReplicasPath": ".spec.count", "statusReplicasPath": ".status.count", "labelSelectorPath": ".status.selector"}});
    })
    .await;
    server.create(&path("v1"), &widget("v1", "a", json!({}))).await.ok();
    let (name, scale) = (format!("{}/a", path("v1")), format!("{}/a/scale", path("v1")));
    let missing = server.get(&scale).await.refused(500);
    assert_eq!(missing, "Internal error occurred: the spec replicas field \".spec.count\" does not exist");
    let empty = server.merge(&scale, json!({"metadata": {"name": "a"}})).await.refused(400);
    assert_eq!(empty, "the spec replicas field \".spec.count\" cannot be empty");
    server
        .merge(&format!("{name}/status"), json!({"status": {"count": 2, "selector": "app=web"}}))
        .await
        .ok();
    let scaled = server.merge(&scale, json!({"spec": {"replicas": 4}})).await.ok();
    assert_eq!(scaled["kind"], "Scale");
    assert_eq!(scaled["status"], json!({"replicas": 2, "selector": "app=web"}));
    let object = server.get(&name).await.ok();
    assert_eq!((&object["spec"]["count"], &object["metadata"]["generation"]), (&json!(4), &json!(2)));
    let mut scale_object = server.get(&scale).await.ok();
    scale_object["spec"]["replicas"] = json!(5);
    server.replace(&scale, &scale_object).await.ok();
    let message = server.merge(&scale, json!({"spec": {"replicas": -1}})).await.refused(422);
    assert!(
        message.contains(".spec.count: Invalid value: -1: should be a non-negative integer"),
        "{message}"
    );
}

#[tokio::test]
async fn selectable_fields_are_indexed_and_backfilled() {
    let server = serving(json!({"color": {"type": "string"}, "size": {"type": "integer"}}), |_| {}).await;
    for (name, color) in [("a", "red"), ("b", "blue"), ("c", "red")] {
        server.create(&path("v1"), &widget("v1", name, json!({"color": color, "size": 1}))).await.ok();
    }
    let red = format!("{}?fieldSelector=spec.color%3Dred", path("v1"));
    let unknown = server.get(&red).await.refused(400);
    assert_eq!(unknown, "field label not supported: spec.color");
    let mut selectable =
        version("v1", true, json!({"color": {"type": "string"}, "size": {"type": "integer"}}));
    selectable["selectableFields"] = json!([{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.size"}]);
    server
        .merge(&format!("{DEFINITIONS}/widgets.example.com"), json!({"spec": {"versions": [selectable]}}))
        .await
        .ok();
    let names = |list: Value| -> Vec<String> {
        let items = list["items"].as_array().unwrap().iter();
        items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(server.get(&red).await.ok()), ["a", "c"]);
    server.merge(&format!("{}/a", path("v1")), json!({"spec": {"color": "blue"}})).await.ok();
    assert_eq!(names(server.get(&red).await.ok()), ["c"]);
    let both = format!("{}?fieldSelector=spec.color!%3Dred,spec.size%3D1", path("v1"));
    assert_eq!(names(server.get(&both).await.ok()), ["a", "b"]);
    let mut watch = server.watch(&format!("{red}&watch=true&resourceVersion=0")).await;
    assert_eq!(watch.next().await.unwrap()["object"]["metadata"]["name"], "c");
    server.merge(&format!("{}/b", path("v1")), json!({"spec": {"color": "red"}})).await.ok();
    let came = watch.next().await.unwrap();
    assert_eq!((&came["type"], &came["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("b")));
}

#[tokio::test]
async fn patches_and_apply_follow_the_structural_schema() {
    let spec = json!({"ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "port": {"type": "integer"}}}}});
    let server = serving(spec, |_| {}).await;
    let strategic = "application/strategic-merge-patch+json";
    let name = format!("{}/a", path("v1"));
    server.create(&path("v1"), &widget("v1", "a", json!({}))).await.ok();
    let refused = server.call(Method::PATCH, &name, strategic, &json!({})).await.refused(415);
    assert!(
        refused.contains(
            "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
        ),
        "{refused}"
    );
    let mine = |port: i64| widget("v1", "a", json!({"ports": [{"name": "http", "port": port}]}));
    let theirs = widget("v1", "a", json!({"ports": [{"name": "https", "port": 443}]}));
    server.apply(&format!("{name}?fieldManager=me"), &mine(80)).await.ok();
    let both = server.apply(&format!("{name}?fieldManager=you"), &theirs).await.ok();
    assert_eq!(both["spec"]["ports"].as_array().unwrap().len(), 2);
    let conflict = server.apply(&format!("{name}?fieldManager=you"), &mine(8080)).await.refused(409);
    assert!(conflict.contains("conflict with \"me\": .spec.ports[name=\"http\"].port"), "{conflict}");
    let created =
        server.apply(&format!("{}/new?fieldManager=me", path("v1")), &widget("v1", "new", json!({}))).await;
    assert_eq!(created.code, 201);
}

#[tokio::test]
async fn update_requires_resource_version() {
    let server = serving(json!({"size": {"type": "integer"}}), |_| {}).await;
    let created = server.create(&path("v1"), &widget("v1", "a", json!({}))).await.ok();
    let name = format!("{}/a", path("v1"));
    let message = server.replace(&name, &widget("v1", "a", json!({"size": 1}))).await.refused(422);
    assert!(message.contains("metadata.resourceVersion: Invalid value"), "{message}");
    server.replace(&name, &created).await.ok();
    server.merge(&name, json!({"spec": {"size": 2}})).await.ok();
    server.replace(&name, &created).await.refused(409);
}

#[tokio::test]
async fn tables_have_additional_printer_columns() {
    let server = serving(json!({"size": {"type": "integer"}, "since": {"type": "string"}}), |version| {
        version["additionalPrinterColumns"] = json!([
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": 1, "description": "how large"},
            {"name": "Since", "type": "date", "jsonPath": ".spec.since"},
            {"name": "Labels", "type": "string", "jsonPath": ".metadata.labels"},
        ]);
    })
    .await;
    server
        .create(&path("v1"), &widget("v1", "a", json!({"size": 5, "since": "2000-01-01T00:00:00Z"})))
        .await
        .ok();
    let request =
        http::Request::get(path("v1")).header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let table = server.send(request).await;
    let columns: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| column["name"].as_str().unwrap())
        .collect();
    assert_eq!(columns, ["Name", "Size", "Since", "Labels"]);
    let cells = &table["rows"][0]["cells"];
    assert_eq!((&cells[0], &cells[1], &cells[3]), (&json!("a"), &json!(5), &Value::Null));
    assert!(cells[2].as_str().unwrap().ends_with('y'), "{cells}");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_patches_do_not_conflict() {
    let server =
        serving(json!({"count": {"type": "object", "additionalProperties": {"type": "integer"}}}), |_| {})
            .await;
    server.create(&path("v1"), &widget("v1", "a", json!({"count": {}}))).await.ok();
    let name = format!("{}/a", path("v1"));
    let patch = |index: usize| {
        let (server, name) = (&server, &name);
        async move { server.merge(name, json!({"spec": {"count": {index.to_string(): index}}})).await.ok() }
    };
    futures_util::future::join_all((0..16).map(patch)).await;
    let counted = server.get(&name).await.ok();
    assert_eq!(counted["spec"]["count"].as_object().unwrap().len(), 16);
}

#[tokio::test]
async fn schema_restricts_metadata_name() {
    let server = serving(json!({}), |version| {
        version["schema"]["openAPIV3Schema"]["properties"]["metadata"] =
            json!({"type": "object", "properties": {"name": {"type": "string", "pattern": "^w-", "maxLength": 5}}});
    })
    .await;
    server.create(&path("v1"), &widget("v1", "w-one", json!({}))).await.ok();
    for (name, told) in [
        ("w-long", "metadata.name: Too long: may not be more than 5 bytes"),
        ("x", "metadata.name: Invalid value: \"x\": metadata.name in body should match '^w-'"),
    ] {
        let message = server.create(&path("v1"), &widget("v1", name, json!({}))).await.refused(422);
        assert_eq!(message, format!("Widget.example.com \"{name}\" is invalid: {told}"));
    }
}

#[tokio::test]
async fn new_default_applies_to_stored_objects() {
    let server = serving(json!({"size": {"type": "integer"}}), |_| {}).await;
    server.create(&path("v1"), &widget("v1", "a", json!({}))).await.ok();
    let defaulted = version("v1", true, json!({"size": {"type": "integer", "default": 7}}));
    let name = format!("{DEFINITIONS}/widgets.example.com");
    server.merge(&name, json!({"spec": {"versions": [defaulted]}})).await.ok();
    assert_eq!(server.get(&format!("{}/a", path("v1"))).await.ok()["spec"]["size"], 7);
    assert_eq!(server.get(&path("v1")).await.ok()["items"][0]["spec"]["size"], 7);
    let mut watch = server.watch(&format!("{}?watch=true&resourceVersion=0", path("v1"))).await;
    assert_eq!(watch.next().await.unwrap()["object"]["spec"]["size"], 7);
}

#[tokio::test]
async fn defaults_of_status_are_applied_on_create_and_apply() {
    let server = serving(json!({"size": {"type": "integer"}}), |version| {
        version["subresources"] = json!({"status": {}});
        version["schema"]["openAPIV3Schema"]["properties"]["status"] = json!({
            "type": "object", "default": {"observedGeneration": -1},
            "properties": {
                "observedGeneration": {"type": "integer"},
                "phase": {"type": "string", "default": "Pending"},
            },
        });
    })
    .await;
    let expected = json!({"observedGeneration": -1, "phase": "Pending"});
    let mut asked = widget("v1", "a", json!({"size": 1}));
    asked["status"] = json!({"observedGeneration": 7});
    assert_eq!(server.create(&path("v1"), &asked).await.ok()["status"], expected);
    assert_eq!(server.get(&format!("{}/a", path("v1"))).await.ok()["status"], expected);
    let applied = server
        .apply(&format!("{}/b?fieldManager=me", path("v1")), &widget("v1", "b", json!({"size": 1})))
        .await
        .ok();
    assert_eq!(applied["status"], expected);
}

#[tokio::test]
async fn new_default_of_status_applies_to_stored_objects() {
    let with_status = |status: Value| {
        move |version: &mut Value| {
            version["subresources"] = json!({"status": {}});
            version["schema"]["openAPIV3Schema"]["properties"]["status"] = status.clone();
        }
    };
    let number = json!({"observedGeneration": {"type": "integer"}});
    let plain = json!({"type": "object", "properties": number});
    let server = serving(json!({"size": {"type": "integer"}}), with_status(plain)).await;
    server.create(&path("v1"), &widget("v1", "a", json!({"size": 1}))).await.ok();
    let mut defaulted = version("v1", true, json!({"size": {"type": "integer"}}));
    let status = json!({"type": "object", "default": {"observedGeneration": -1}, "properties": number});
    with_status(status)(&mut defaulted);
    let definition = format!("{DEFINITIONS}/widgets.example.com");
    server.merge(&definition, json!({"spec": {"versions": [defaulted]}})).await.ok();
    let (object, expected) = (format!("{}/a", path("v1")), json!({"observedGeneration": -1}));
    assert_eq!(server.get(&object).await.ok()["status"], expected);
    assert_eq!(server.get(&format!("{object}/status")).await.ok()["status"], expected);
    assert_eq!(server.get(&path("v1")).await.ok()["items"][0]["status"], expected);
    let mut watch = server.watch(&format!("{}?watch=true&resourceVersion=0", path("v1"))).await;
    assert_eq!(watch.next().await.unwrap()["object"]["status"], expected);
    let merged = server.merge(&object, json!({"spec": {"size": 2}})).await.ok();
    assert_eq!(merged["status"], expected);
}

/// An object that its schema no longer allows may be written as it is: values that do not change are not validated
/// again. A patch of which nothing is left once it is pruned changes nothing.
#[tokio::test]
async fn patch_of_which_nothing_is_left_is_accepted_on_an_invalid_object() {
    let loose = json!({
        "size": {"type": "integer"}, "list": {"type": "array", "items": {"type": "integer"}},
        "name": {"type": "string"},
    });
    let server = serving(loose, |_| {}).await;
    let object = widget("v1", "a", json!({"size": 9, "list": [1, 1], "name": "x"}));
    let created = server.create(&path("v1"), &object).await.ok();
    let strict = json!({
        "size": {"type": "integer", "maximum": 3},
        "list": {"type": "array", "items": {"type": "integer"}, "x-kubernetes-list-type": "set"},
        "name": {"type": "string", "x-kubernetes-validations": [{"rule": "self == 'y'"}]},
        "late": {"type": "string"},
    });
    let mut version = version("v1", true, strict);
    version["schema"]["openAPIV3Schema"]["properties"]["spec"]["required"] = json!(["late"]);
    let definition = format!("{DEFINITIONS}/widgets.example.com");
    server.merge(&definition, json!({"spec": {"versions": [version]}})).await.ok();
    let path = format!("{}/a", path("v1"));
    let patched = server.merge(&path, json!({"spec": {"unknown": 1}})).await.ok();
    assert_eq!(patched["spec"], created["spec"]);
    assert_eq!(patched["metadata"]["generation"], 1);
    assert_eq!(patched["metadata"]["managedFields"], created["metadata"]["managedFields"]);
    // Labels may change too; a value of the spec that does is validated.
    server.merge(&path, json!({"metadata": {"labels": {"a": "b"}}})).await.ok();
    server.merge(&path, json!({"spec": {"size": 8}})).await.refused(422);
}

#[tokio::test]
async fn apply_prunes_and_validates_nulls_as_create_does() {
    let spec = json!({
        "empty": {"type": "object"},
        "list": {"type": "array", "items": {"type": "object"}},
        "nested": {"type": "object", "properties": {"a": {"type": "string"}}},
    });
    let server = serving(spec, |_| {}).await;
    let config = widget("v1", "a", json!({"empty": {"x": 1}, "list": [{"x": 1}], "nested": {"a": "b"}}));
    let applied = server.apply(&format!("{}/a?fieldManager=me", path("v1")), &config).await.ok();
    let expected = json!({"empty": {}, "list": [{}], "nested": {"a": "b"}});
    assert_eq!(applied["spec"], expected);
    let config = widget("v1", "b", json!({"empty": {"x": 1}, "list": [{"x": 1}], "nested": {"a": "b"}}));
    assert_eq!(server.create(&path("v1"), &config).await.ok()["spec"], expected);
    let null = widget("v1", "c", json!({"nested": null}));
    let message = server.apply(&format!("{}/c?fieldManager=me", path("v1")), &null).await.refused(422);
    assert!(message.contains("spec.nested in body must be of type object: \"null\""), "{message}");
}

#[tokio::test]
async fn custom_object_names_its_kind_and_version() {
    let server = serving(json!({}), |_| {}).await;
    let group = widget("v1", "a", json!({}))["apiVersion"].as_str().unwrap().replace("/v1", "");
    let message = server.create(&path("v1"), &json!({})).await.refused(400);
    let missing = "Object 'Kind' is missing in '{}' ({})";
    assert_eq!(message, format!("the object provided is unrecognized (must be of type Widget): {missing}"));
    let other_version = widget("v9", "a", json!({}));
    let message = server.create(&path("v1"), &other_version).await.refused(400);
    assert_eq!(
        message,
        format!(
            "the API version in the data ({group}/v9) does not match the expected API version ({group}/v1)"
        )
    );
    let mut other_kind = widget("v1", "a", json!({}));
    other_kind["kind"] = "Gadget".into();
    let message = server.create(&path("v1"), &other_kind).await.refused(422);
    assert_eq!(
        message,
        format!("Gadget.{group} \"a\" is invalid: kind: Invalid value: \"Gadget\": must be Widget")
    );
}

#[tokio::test]
async fn namespaced_custom_resource_has_no_writes_at_the_cluster_path() {
    let server = serving(json!({}), |_| {}).await;
    let all = path("v1").replace("/namespaces/default", "");
    for method in [Method::POST, Method::DELETE] {
        let answer = server.call(method, &all, "application/json", &widget("v1", "a", json!({}))).await;
        assert_eq!((answer.code, answer.body), (404, "404 page not found\n".into()));
    }
    server.get(&all).await.ok();
}

#[tokio::test]
async fn resource_version_zero_is_none() {
    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    let server = serving(json!({"a": {"type": "integer"}}), |_| {}).await;
    let mut object = widget("v1", "a", json!({"a": 1}));
    object["metadata"]["resourceVersion"] = "0".into();
    server.create(&path("v1"), &object).await.ok();
    let own = format!("{}/a", path("v1"));
    let message = server.call(Method::PUT, &own, "application/json", &object).await.refused(422);
    assert!(
        message.ends_with("metadata.resourceVersion: Invalid value: 0: must be specified for an update"),
        "{message}"
    );
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "resourceVersion": "0"}});
    server.create(MAPS, &map).await.ok();
    let own = format!("{MAPS}/a");
    server.call(Method::PUT, &own, "application/json", &map).await.ok();
    let patch = json!({"metadata": {"resourceVersion": "0"}, "data": {"a": "b"}});
    let patched = server.call(Method::PATCH, &own, "application/merge-patch+json", &patch).await.ok();
    assert_eq!(patched["data"]["a"], "b");
}
