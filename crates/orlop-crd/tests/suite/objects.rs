//! Validation of objects.

use crate::widgets::{changed, read, version_of, with_schema};
use orlop_crd::{ValidationResult, Version, object_warnings};
use serde_json::{Value, json};
use std::sync::Arc;

fn texts(found: &ValidationResult) -> Vec<String> {
    found.errors.iter().map(ToString::to_string).collect()
}

fn widget(spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "n", "resourceVersion": "1"}, "spec": spec})
}

fn ruled() -> Arc<Version> {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["size"], "x-kubernetes-validations": [{"rule": "self.size < 10", "message": "too big"}], "properties": {
            "size": {"type": "integer", "minimum": 0}, "name": {"type": "string", "maxLength": 3, "pattern": "^[a-z]*$"},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "template": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}},
        "status": {"type": "object", "properties": {"size": {"type": "integer"}, "selector": {"type": "string"}}}}});
    let subresources = json!({"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size", "labelSelectorPath": ".status.selector"}});
    let definition = changed(with_schema(schema), &[("/spec/versions/0/subresources", subresources)]);
    version_of(&definition)
}

const NOT_CHECKED: &str = "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";

#[test]
fn errors_are_in_kubernetes_order() {
    let version = ruled();
    assert_eq!(texts(&version.validate_create(&widget(json!({"size": 1})))), Vec::<String>::new());
    assert_eq!(
        texts(&version.validate_create(&widget(json!({"size": 10})))),
        ["spec: Invalid value: too big"]
    );
    let mut wrong = widget(json!({"size": -1, "name": "A", "set": ["a", "a"], "template": {"kind": "Pod"}}));
    wrong["metadata"]["name"] = json!("W");
    let found = texts(&version.validate_create(&wrong));
    let starts = [
        "metadata.name: Invalid value: \"W\": a lowercase RFC 1123 subdomain",
        "spec.name: Invalid value: \"A\": spec.name in body should match '^[a-z]*$'",
        "spec.size: Invalid value: -1: spec.size in body should be greater than or equal to 0",
        ".spec.size: Invalid value: -1: should be a non-negative integer",
        "spec.template.apiVersion: Required value",
        "spec.set[1]: Duplicate value: \"a\"",
        NOT_CHECKED,
    ];
    assert_eq!(found.len(), starts.len(), "{found:#?}");
    for (found, start) in found.iter().zip(starts) {
        assert!(found.starts_with(start), "{found}\n{start}");
    }
    let mut foreign = widget(json!({}));
    foreign["kind"] = json!("Gadget");
    foreign["apiVersion"] = json!("example.com/v2");
    assert_eq!(
        texts(&version.validate_create(&foreign)),
        [
            "kind: Invalid value: \"Gadget\": must be Widget",
            "apiVersion: Invalid value: \"example.com/v2\": must be example.com/v1"
        ]
    );
}

#[test]
fn type_errors_block_rules() {
    let version = ruled();
    let check = |spec: Value| texts(&version.validate_create(&widget(spec)));
    assert_eq!(check(json!({})), ["spec.size: Required value", NOT_CHECKED]);
    assert_eq!(
        check(json!({"size": 1, "name": "long"})),
        ["spec.name: Too long: may not be more than 3 bytes", NOT_CHECKED]
    );
    assert_eq!(
        check(json!({"size": "x"}))[0],
        "spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\""
    );
    // A pattern does not.
    assert_eq!(
        check(json!({"size": 11, "name": "A"})),
        [
            "spec.name: Invalid value: \"A\": spec.name in body should match '^[a-z]*$'",
            "spec: Invalid value: too big"
        ]
    );
}

#[test]
fn updates_ratchet_stored_errors() {
    let version = ruled();
    let check = |old: Value, new: Value| version.validate_update(&widget(new), &widget(old));
    let found = check(
        json!({"size": 11, "name": "A", "set": ["a", "a"]}),
        json!({"size": 11, "name": "A", "set": ["a", "a", "b"]}),
    );
    assert_eq!(texts(&found), ["spec: Invalid value: too big"]);
    let found = check(json!({"size": 11, "name": "A"}), json!({"size": 11, "name": "A"}));
    assert_eq!((texts(&found), found.warnings), (vec![], vec!["spec: Invalid value: too big".to_owned()]));
    assert_eq!(
        texts(&check(json!({"size": 1}), json!({"size": 1, "set": ["b", "b"]}))),
        ["spec.set[1]: Duplicate value: \"b\""]
    );
    assert_eq!(
        texts(&version.validate_update(
            &changed(widget(json!({"size": 1})), &[("/metadata/name", json!("x"))]),
            &widget(json!({"size": 1}))
        )),
        ["metadata.name: Invalid value: \"x\": field is immutable"]
    );
}

#[test]
fn status_update_validates_status_only() {
    let version = ruled();
    let with = |status: Value| changed(widget(json!({"size": 1})), &[("/status", status)]);
    let check = |status: Value| texts(&version.validate_status_update(&with(status), &with(json!({}))));
    assert_eq!(check(json!({"size": 3, "selector": "a=b"})), Vec::<String>::new());
    assert_eq!(
        check(json!({"size": "x"})),
        [
            "status.size: Invalid value: \"string\": size in body must be of type integer: \"string\"",
            ".status.size: Invalid value: 0: .status.size accessor error: x is of the type string, expected int64",
            NOT_CHECKED,
        ]
    );
    assert_eq!(
        check(json!({"size": 5_000_000_000_i64})),
        [".status.size: Invalid value: 5000000000: should be less than or equal to 2147483647"]
    );
    assert_eq!(
        check(json!({"selector": {"a": 1}}))[1],
        ".status.selector: Invalid value: \"\": .status.selector accessor error: map[a:1] is of the type map[string]interface {}, expected string"
    );
    assert_eq!(
        check(json!("text")).first().unwrap(),
        "status: Invalid value: \"string\":  in body must be of type object: \"string\""
    );
}

#[test]
fn unqualified_finalizers_warn() {
    let with = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
    let warnings = object_warnings(
        &with(json!([
            "kubernetes",
            "orphan",
            "foregroundDeletion",
            "example.com/x",
            "b",
            "example.com",
            "a b/c"
        ])),
        None,
    );
    let advice = "to avoid accidental conflicts with other finalizer writers";
    assert_eq!(warnings.len(), 3, "{warnings:#?}");
    assert!(warnings[0].starts_with("metadata.finalizers: \"a b/c\": prefix part"), "{warnings:?}");
    assert_eq!(
        warnings[1],
        format!("metadata.finalizers: \"b\": prefer a domain-qualified finalizer name {advice}")
    );
    assert_eq!(
        warnings[2],
        format!(
            "metadata.finalizers: \"example.com\": prefer a domain-qualified finalizer name including a path (/) {advice}"
        )
    );
    assert_eq!(object_warnings(&with(json!(["b"])), Some(&with(json!(["b"])))), Vec::<String>::new());
}

#[test]
fn version_without_schema_preserves_unknown_fields() {
    let definition = changed(
        with_schema(json!({"type": "object"})),
        &[("/spec/versions/0/schema", json!(null)), ("/spec/preserveUnknownFields", json!(true))],
    );
    let version = version_of(&definition);
    let mut object = widget(json!({"anything": [1, {"goes": null}]}));
    assert!(
        orlop_api::schema::prune(&mut object, version.schema(), orlop_api::schema::Root::Resource).is_empty()
    );
    assert_eq!(texts(&version.validate_create(&object)), Vec::<String>::new());
    assert!(version.rules().is_empty() && version.open_api_schema().is_null());
    assert!(crate::widgets::version(json!({"type": "object"})).rules().is_empty());
}

#[test]
fn deprecated_versions_warn() {
    let of = |changes: &[(&str, Value)]| {
        let definition = read(&changed(with_schema(json!({"type": "object"})), changes));
        definition.version("v1").unwrap().warning()
    };
    let deprecated = ("/spec/versions/0/deprecated", json!(true));
    let other = |name: &str, served: bool| {
        ("/spec/versions/-", json!({"name": name, "served": served, "storage": false}))
    };
    assert_eq!(of(&[]), None);
    assert_eq!(of(std::slice::from_ref(&deprecated)).unwrap(), "example.com/v1 Widget is deprecated");
    assert_eq!(
        of(&[
            deprecated.clone(),
            other("v1beta1", true),
            other("v3", true),
            other("v2", true),
            other("v4", false)
        ])
        .unwrap(),
        "example.com/v1 Widget is deprecated; use example.com/v3 Widget"
    );
    assert_eq!(
        of(&[deprecated, ("/spec/versions/0/deprecationWarning", json!("gone soon"))]).unwrap(),
        "gone soon"
    );
}
