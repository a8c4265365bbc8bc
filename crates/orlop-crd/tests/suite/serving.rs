//! Serving of versions: columns, scale, selectable fields.

use crate::widgets::{changed, version_of, widgets};
use orlop_api::time::Time;
use orlop_crd::{Conversion, Definition, InvalidDefinition, Scope, Version, WebhookTarget};
use serde_json::{Value, json};
use std::sync::Arc;

fn version(key: &str, value: Value) -> Arc<Version> {
    let definition = changed(widgets(), &[(&format!("/spec/versions/0/{key}"), value)]);
    version_of(&definition)
}

#[test]
fn definition_parses_names_versions_and_schemas() {
    let second = changed(
        widgets()["spec"]["versions"][0].clone(),
        &[("/name", json!("v2")), ("/storage", json!(false)), ("/served", json!(false))],
    );
    let webhook = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1", "v1beta1"], "clientConfig": {"caBundle": "Y2E=", "service": {"namespace": "n", "name": "s", "path": "/p", "port": 8443}}}});
    let source = changed(
        widgets(),
        &[("/spec/versions/-", second), ("/spec/conversion", webhook), ("/metadata/uid", json!("u"))],
    );
    let definition = Definition::of(&source).unwrap();
    assert_eq!(
        (definition.name.as_str(), definition.uid.as_str(), definition.group.as_str()),
        ("widgets.example.com", "u", "example.com")
    );
    assert_eq!((definition.scope, definition.names.kind.as_str()), (Scope::Namespaced, "Widget"));
    assert_eq!(definition.storage_version().name, "v1");
    assert_eq!(definition.served_versions().map(|version| version.name.as_str()).collect::<Vec<_>>(), ["v1"]);
    assert!(definition.version("v3").is_none());
    assert_eq!(definition.version("v2").unwrap().api_version(), "example.com/v2");
    let Conversion::Webhook(webhook) = &definition.conversion else { panic!("no webhook") };
    assert_eq!(webhook.ca_bundle, b"ca");
    assert_eq!(webhook.review_versions, ["v1", "v1beta1"]);
    assert_eq!(
        webhook.target,
        WebhookTarget::Service { namespace: "n".into(), name: "s".into(), path: "/p".into(), port: 8443 }
    );
    assert_eq!(Definition::of(&json!({})).unwrap_err(), InvalidDefinition::Missing("spec"));
    assert_eq!(
        Definition::of(&changed(widgets(), &[("/spec/versions/0/storage", json!(false))])).unwrap_err(),
        InvalidDefinition::NoStorageVersion
    );
    // What is used is built once.
    let version = definition.version("v1").unwrap();
    assert!(std::ptr::eq(version.schema(), version.schema()));
    assert_eq!(version.open_api_schema(), source["spec"]["versions"][0]["schema"]["openAPIV3Schema"]);
}

#[test]
fn cells_match_kubectl_output() {
    let columns = json!([
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "how large", "priority": 1, "format": "int64"},
        {"name": "Text", "type": "string", "jsonPath": ".spec.value"},
        {"name": "Ready", "type": "boolean", "jsonPath": ".status.ready"},
        {"name": "Ratio", "type": "number", "jsonPath": ".spec.ratio"},
        {"name": "Since", "type": "date", "jsonPath": ".status.since"},
        {"name": "Phase", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
    ]);
    let version = version("additionalPrinterColumns", columns);
    let headers: Vec<_> = version
        .columns()
        .columns()
        .iter()
        .map(|column| (column.name.as_str(), column.kind.as_str(), column.format.as_str(), column.priority))
        .collect();
    assert_eq!(headers[0], ("Name", "string", "name", 0));
    assert_eq!(headers[1], ("Size", "integer", "int64", 1));
    assert_eq!(version.columns().columns()[1].description, "how large");
    assert_eq!(
        version.columns().columns()[2].description,
        "Custom resource definition column (in JSONPath format): .spec.value"
    );
    let now = Time::parse("2026-01-01T01:00:00Z").unwrap();
    let cells = |spec: Value, status: Value| {
        version.columns().cells(&json!({"metadata": {"name": "w"}, "spec": spec, "status": status}), now)
    };
    assert_eq!(
        cells(
            json!({"size": 3, "value": "v", "ratio": 0.5}),
            json!({"ready": true, "since": "2026-01-01T00:00:00Z", "conditions": [{"type": "Other"}, {"type": "Ready", "status": "True"}]})
        ),
        [json!("w"), json!(3), json!("v"), json!(true), json!(0.5), json!("60m"), json!("True")]
    );
    assert_eq!(
        cells(json!({}), json!({})),
        [json!("w"), json!(null), json!(null), json!(null), json!(null), json!(null), json!(null)]
    );
    // Other types than declared are left out, but a column of strings prints whatever it finds.
    assert_eq!(
        cells(json!({"size": "3", "ratio": 2}), json!({"ready": "yes", "since": "soon"}))[1..6],
        [json!(null), json!(null), json!(null), json!(2), json!("<invalid>")]
    );
    for (value, expected) in [
        (json!(5), "5"),
        (json!(1.5), "1.5"),
        (json!(true), "true"),
        (json!({"a": [1, "b"]}), r#"{"a":[1,"b"]}"#),
        (json!([]), "[]"),
        (json!(null), "<no value>"),
        (json!(""), ""),
    ] {
        assert_eq!(cells(json!({"value": value}), json!({}))[2], json!(expected), "{value}");
    }
    assert_eq!(cells(json!({}), json!({"since": ""}))[5], json!("<unknown>"));
}

#[test]
fn version_without_columns_shows_age() {
    let version = version("additionalPrinterColumns", json!(null));
    let names: Vec<_> = version.columns().columns().iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["Name", "Age"]);
    let object = json!({"metadata": {"name": "w", "creationTimestamp": "2026-01-01T00:00:00Z"}});
    assert_eq!(
        version.columns().cells(&object, Time::parse("2026-01-01T00:00:07Z").unwrap()),
        [json!("w"), json!("7s")]
    );
}

#[test]
fn column_with_invalid_path_is_left_out() {
    let columns = json!([{"name": "A", "type": "string", "jsonPath": ".a"}, {"name": "B", "type": "string", "jsonPath": ".b[}"}, {"name": "C", "type": "string", "jsonPath": ".c"}]);
    let version = version("additionalPrinterColumns", columns);
    assert_eq!(
        version.columns().columns().iter().map(|column| column.name.as_str()).collect::<Vec<_>>(),
        ["Name", "A", "C"]
    );
}

#[test]
fn scale_reads_and_writes_replicas() {
    let version = version(
        "subresources",
        json!({"scale": {"specReplicasPath": ".spec.inner.size", "statusReplicasPath": ".status.size", "labelSelectorPath": ".status.selector"}}),
    );
    let scale = version.scale().unwrap();
    let mut object = json!({"metadata": {"name": "w", "namespace": "n", "uid": "u", "resourceVersion": "5", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"a": "b"}}, "spec": {"inner": {"size": 3}}, "status": {"size": 2, "selector": "a=b"}});
    let (found, asked) = scale.read(&object).unwrap();
    assert!(asked);
    assert_eq!(
        found,
        json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "w", "namespace": "n", "uid": "u", "resourceVersion": "5", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"replicas": 3}, "status": {"replicas": 2, "selector": "a=b"}})
    );
    scale.write(&mut object, 7).unwrap();
    assert_eq!(object["spec"]["inner"]["size"], 7);
    let mut bare = json!({"metadata": {"name": "w"}});
    let (found, asked) = scale.read(&bare).unwrap();
    assert_eq!((found["status"].clone(), asked), (json!({"replicas": 0}), false));
    assert_eq!(scale.missing_replicas(), r#"the spec replicas field ".spec.inner.size" does not exist"#);
    assert_eq!(scale.empty_replicas(), r#"the spec replicas field ".spec.inner.size" cannot be empty"#);
    scale.write(&mut bare, 1).unwrap();
    assert_eq!(bare["spec"], json!({"inner": {"size": 1}}));
    assert_eq!(
        scale.read(&json!({"spec": {"inner": "x"}})).unwrap_err(),
        ".spec.inner.size accessor error: x is of the type string, expected map[string]interface{}"
    );
    assert_eq!(
        scale.read(&json!({"spec": {"inner": {"size": 1.5}}})).unwrap_err(),
        ".spec.inner.size accessor error: 1.5 is of the type float64, expected int64"
    );
    assert_eq!(
        scale.write(&mut json!({"spec": {"inner": 5}}), 1).unwrap_err(),
        "value cannot be set because .spec.inner is not a map[string]interface{}"
    );
}

#[test]
fn selectable_fields_are_formatted_as_text() {
    let version = version(
        "selectableFields",
        json!([{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.size"}, {"jsonPath": ".spec.on"}]),
    );
    let selectable = version.selectable();
    assert_eq!(selectable.names().collect::<Vec<_>>(), ["spec.color", "spec.size", "spec.on"]);
    let object = json!({"spec": {"color": "red", "size": 5, "on": false}});
    let values: Vec<_> = selectable.values(&object).collect();
    assert_eq!(
        values,
        [("spec.color", "red".to_owned()), ("spec.size", "5".to_owned()), ("spec.on", "false".to_owned())]
    );
    assert_eq!(selectable.value("spec.color", &json!({})).unwrap(), "");
    assert_eq!(selectable.value("spec.color", &json!({"spec": {"color": null}})).unwrap(), "");
    assert_eq!(selectable.value("spec.other", &object), None);
    assert!(crate::widgets::version(json!({"type": "object"})).selectable().is_empty());
}
