//! Conversion reviews: requests and validation of responses.

use orlop_api::group_version::GroupVersionKind;
use orlop_crd::conversion::{conversion_request, needs_conversion, objects_of_response, set_api_version};
use serde_json::{Value, json};

fn widget(version: &str, name: &str) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Widget",
        "metadata": {"name": name, "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["x/y"]}, "spec": {"v": version}})
}

fn review(objects: Vec<Value>) -> Value {
    conversion_request(&["v1".to_owned()], "r", "example.com/v2", objects).expect("a review")
}

fn response(objects: Value) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": {"uid": "r", "result": {"status": "Success"}, "convertedObjects": objects}})
}

fn convert(kind: &str, objects: Vec<Value>, response: Value) -> Result<Vec<Value>, String> {
    objects_of_response(&review(objects), &GroupVersionKind::new("example.com", "v1", kind), response)
}

#[test]
fn request_uses_first_supported_review_version() {
    let versions =
        |versions: &[&str]| versions.iter().map(|version| (*version).to_owned()).collect::<Vec<_>>();
    let asked = conversion_request(
        &versions(&["v9", "v1beta1", "v1"]),
        "r",
        "example.com/v2",
        vec![widget("v1", "a")],
    )
    .unwrap();
    assert_eq!(asked["apiVersion"], "apiextensions.k8s.io/v1beta1");
    assert_eq!(asked["kind"], "ConversionReview");
    assert_eq!(
        asked["request"],
        json!({"uid": "r", "desiredAPIVersion": "example.com/v2", "objects": [widget("v1", "a")]})
    );
    assert_eq!(
        conversion_request(&versions(&["v9"]), "r", "x", vec![]).unwrap_err(),
        "no supported conversion review versions"
    );
}

#[test]
fn strategy_none_changes_only_api_version() {
    let mut object = widget("v1", "a");
    assert!(needs_conversion(&object, "example.com/v2"));
    set_api_version(&mut object, "example.com/v2");
    assert!(!needs_conversion(&object, "example.com/v2"));
    assert_eq!(object["spec"]["v"], "v1");
}

#[test]
fn converted_objects_keep_metadata_except_labels_and_annotations() {
    let mut answer = widget("v2", "a");
    answer["metadata"] = json!({"name": "a", "namespace": "n", "uid": "u", "labels": {"new": "l"}, "generation": 99, "finalizers": []});
    let found = convert("Widget", vec![widget("v1", "a")], response(json!([answer]))).unwrap();
    assert_eq!(
        found[0],
        json!({"apiVersion": "example.com/v2", "kind": "Widget", "spec": {"v": "v2"},
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"new": "l"}, "finalizers": ["x/y"]}})
    );
}

#[test]
fn invalid_responses_are_refused() {
    let one = || vec![widget("v1", "a")];
    let failed = |why: &str| Err(format!("conversion webhook for example.com/v1, Kind=Widget failed: {why}"));
    assert_eq!(
        convert("Widget", one(), json!({"apiVersion": "v1", "kind": "Pod"})),
        failed(
            "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /v1, Kind=Pod"
        )
    );
    let bare = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"});
    assert_eq!(convert("Widget", one(), bare), failed("no response provided"));
    let mut other = response(json!([]));
    other["response"]["uid"] = json!("q");
    assert_eq!(convert("Widget", one(), other), failed(r#"expected response.uid="r", got "q""#));
    let mut refused = response(json!([]));
    refused["response"]["result"] = json!({"status": "Failure"});
    assert_eq!(
        convert("Widget", one(), refused.clone()),
        failed("response.result.status was 'Failure', not 'Success'")
    );
    refused["response"]["result"]["message"] = json!("cannot");
    assert_eq!(convert("Widget", one(), refused), failed("cannot"));
    assert_eq!(
        convert("Widget", one(), response(json!([]))),
        Err("conversion webhook for example.com/v1, Kind=Widget returned 0 objects, expected 1".to_owned())
    );
    // Old reviews are not asked who they answer.
    let asked = conversion_request(&["v1beta1".to_owned()], "r", "example.com/v2", one()).unwrap();
    let kind = GroupVersionKind::new("example.com", "v1", "Widget");
    let answer =
        json!({"response": {"result": {"status": "Success"}, "convertedObjects": [widget("v2", "a")]}});
    assert_eq!(objects_of_response(&asked, &kind, answer).unwrap().len(), 1);
}

#[test]
fn converted_objects_must_match_originals() {
    let change =
        |pointer: &str, value: Value| crate::widgets::changed(widget("v2", "a"), &[(pointer, value)]);
    for (answer, alone, in_list) in [
        (
            widget("v3", "a"),
            "object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v3)",
            "converted object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v3)",
        ),
        (
            change("/kind", json!("Gadget")),
            "object at index 0: invalid kind (expected Widget, received Gadget)",
            "converted object at index 0: invalid kind (expected Widget, received Gadget)",
        ),
        (
            widget("v2", "b"),
            "object: must have the same name: a != b",
            "converted object at index 0: must have the same name: a != b",
        ),
        (
            change("/metadata/namespace", json!("m")),
            "object: must have the same namespace: n != m",
            "converted object at index 0: must have the same namespace: n != m",
        ),
        (
            change("/metadata/uid", json!("w")),
            "object: must have the same UID: u != w",
            "converted object at index 0: must have the same UID: u != w",
        ),
        (
            change("/metadata/labels", json!(5)),
            "metadata: invalid metadata.labels of type int64 in converted object",
            "metadata in object at index 0: invalid metadata.labels of type int64 in converted object",
        ),
        (
            change("/metadata/annotations", json!({"x": 1})),
            "metadata: metadata.annotations[x] must be a string, but is int64 in converted object",
            "metadata in object at index 0: metadata.annotations[x] must be a string, but is int64 in converted object",
        ),
    ] {
        let message = |kind: &str, what: &str| {
            Err(format!("conversion webhook for example.com/v1, Kind={kind} returned invalid {what}"))
        };
        assert_eq!(
            convert("Widget", vec![widget("v1", "a")], response(json!([answer]))),
            message("Widget", alone)
        );
        assert_eq!(
            convert("WidgetList", vec![widget("v1", "a")], response(json!([answer]))),
            message("WidgetList", in_list)
        );
    }
    let bad = change("/metadata/labels", json!({"a b": "c"}));
    let found = convert("Widget", vec![widget("v1", "a")], response(json!([bad]))).unwrap_err();
    assert!(found.starts_with("conversion webhook for example.com/v1, Kind=Widget returned invalid metadata: metadata.labels: Invalid value: \"a b\":"), "{found}");
    assert!(convert("Widget", vec![widget("v1", "a")], response(json!(["text"]))).is_err());
}
