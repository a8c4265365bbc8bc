use super::*;
use crate::status::Status;
use proptest::prelude::*;
use serde_json::json;

fn patch(object: Value, patch: Value) -> Result<Value, PatchError> {
    JsonPatch::decode(patch.to_string().as_bytes())?.apply(&object)
}

#[test]
fn operations_match_the_go_library() {
    for (object, operations, expected) in [
        (json!({"a": 1}), json!([{"op": "add", "path": "/b", "value": 2}]), json!({"a": 1, "b": 2})),
        (json!({"a": [1, 3]}), json!([{"op": "add", "path": "/a/1", "value": 2}]), json!({"a": [1, 2, 3]})),
        (json!({"a": [1]}), json!([{"op": "add", "path": "/a/-", "value": 2}]), json!({"a": [1, 2]})),
        (json!({"a": [1]}), json!([{"op": "add", "path": "/a/1", "value": 2}]), json!({"a": [1, 2]})),
        (
            json!({"a": {"b/c": 1, "d~e": 2}}),
            json!([{"op": "remove", "path": "/a/b~1c"}, {"op": "remove", "path": "/a/d~0e"}]),
            json!({"a": {}}),
        ),
        (json!({"a": 1}), json!([{"op": "replace", "path": "/b", "value": 2}]), json!({"a": 1, "b": 2})),
        (json!({"a": 1}), json!([{"op": "replace", "path": "", "value": {"z": 1}}]), json!({"z": 1})),
        (json!({"a": 1}), json!([{"op": "move", "from": "/a", "path": "/b"}]), json!({"b": 1})),
        (
            json!({"a": {"x": 1}}),
            json!([{"op": "copy", "from": "/a", "path": "/b"}]),
            json!({"a": {"x": 1}, "b": {"x": 1}}),
        ),
        (
            json!({"a": 1}),
            json!([{"op": "test", "path": "/a", "value": 1}, {"op": "test", "path": "/none", "value": null}]),
            json!({"a": 1}),
        ),
        (
            json!({"a": null}),
            json!([{"op": "test", "path": "/a"}, {"op": "add", "path": "/b"}]),
            json!({"a": null, "b": null}),
        ),
        (json!({"a": 1}), json!([{"op": "copy", "from": "/none", "path": "/b"}]), json!({"a": 1, "b": null})),
        (json!({"a": 1}), json!([{"op": "replace", "path": "", "value": 1}]), json!({"a": 1})),
        (json!({"a": 1}), json!([]), json!({"a": 1})),
    ] {
        assert_eq!(patch(object, operations.clone()).unwrap(), expected, "{operations}");
    }
}

#[test]
fn operations_that_do_not_apply_are_422_without_details() {
    for operations in [
        json!([{"op": "remove", "path": "/x"}]),
        json!([{"op": "remove", "path": "/l/5"}]),
        json!([{"op": "add", "path": "/x/y", "value": 1}]),
        json!([{"op": "add", "path": "", "value": {}}]),
        json!([{"op": "add", "path": "/l/-1", "value": 1}]),
        json!([{"op": "add", "path": "/l/9", "value": 1}]),
        json!([{"op": "add", "path": "/l/x", "value": 1}]),
        json!([{"op": "replace", "path": "/l/9", "value": 1}]),
        json!([null]),
        json!([{"op": "test", "path": "/a", "value": 2}]),
        json!([{"op": "move", "from": "/x", "path": "/y"}]),
        json!([{"op": "copy", "from": "/x/z", "path": "/y"}]),
        json!([{"op": "copy", "from": "/l/9", "path": "/y"}]),
        json!([{"op": "dance", "path": "/a"}]),
        json!([{"op": "add", "value": 1}]),
    ] {
        let error = patch(json!({"a": 1, "l": [1]}), operations.clone()).unwrap_err();
        let status = Status::from(error);
        assert_eq!(
            (status.code, status.reason.as_str(), status.message.as_str()),
            (422, "Invalid", "the server rejected our request due to an error in our request"),
            "{operations}"
        );
    }
}

#[test]
fn operations_size_and_depth_are_limited() {
    let many: Vec<Value> =
        (0..=OPERATIONS_MAX).map(|_| json!({"op": "test", "path": "/a", "value": 1})).collect();
    let status = Status::from(patch(json!({"a": 1}), json!(many)).unwrap_err());
    assert_eq!(
        (status.code, status.message.as_str()),
        (413, "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001")
    );
    // Copies stop at the size limit, nesting at the depth limit.
    let double =
        json!([{"op": "copy", "from": "/a", "path": "/a/x"}, {"op": "copy", "from": "/a", "path": "/a/y"}]);
    let doubled: Vec<Value> = (0..40).flat_map(|_| double.as_array().unwrap().clone()).collect();
    assert!(matches!(
        patch(json!({"a": {"k": "v"}}), json!(doubled)),
        Err(PatchError::DoesNotApply(_) | PatchError::Malformed(_))
    ));
    let deep: Vec<Value> = (0..200)
        .map(|depth| json!({"op": "add", "path": format!("/a{}", "/a".repeat(depth)), "value": {}}))
        .collect();
    assert_eq!(
        patch(json!({"a": {}}), json!(deep)).unwrap_err(),
        PatchError::Malformed("exceeded max depth".to_owned())
    );
    assert_eq!(
        Status::from(patch(json!({}), json!({"op": "add"})).unwrap_err()).message,
        "json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
    );
}

/// Generous for a debug build under load; measuring the document after each operation takes minutes.
const SECONDS_MAX: u64 = 20;

#[test]
fn work_of_a_patch_does_not_grow_with_document_times_operations() {
    let document = json!({"a": {}, "list": (0..50_000).map(|n| json!({"n": n})).collect::<Vec<_>>()});
    let started = std::time::Instant::now();
    let adds: Vec<Value> = (0..OPERATIONS_MAX)
        .map(|n| json!({"op": "add", "path": format!("/a/{n}"), "value": {"x": [n]}}))
        .collect();
    let patched = patch(document.clone(), json!(adds)).unwrap();
    assert_eq!(patched["a"].as_object().unwrap().len(), OPERATIONS_MAX);
    let moves: Vec<Value> = (0..OPERATIONS_MAX)
        .map(|n| {
            let (from, path) = if n % 2 == 0 { ("/list", "/a/list") } else { ("/a/list", "/list") };
            json!({"op": "move", "from": from, "path": path})
        })
        .collect();
    assert_eq!(patch(document.clone(), json!(moves)).unwrap(), document);
    assert!(started.elapsed().as_secs() < SECONDS_MAX, "{:?}", started.elapsed());
}

#[test]
fn depth_is_bounded_after_every_operation() {
    // Each pair of moves nests the document deeper; the last operation would make it shallow again.
    let mut operations = Vec::new();
    for _ in 0..200 {
        operations.push(json!({"op": "add", "path": "/b", "value": {}}));
        operations.push(json!({"op": "move", "from": "/a", "path": "/b/x"}));
        operations.push(json!({"op": "move", "from": "/b", "path": "/a"}));
    }
    operations.push(json!({"op": "replace", "path": "/a", "value": 1}));
    assert_eq!(
        patch(json!({"a": {}}), json!(operations)).unwrap_err(),
        PatchError::Malformed("exceeded max depth".to_owned())
    );
    // A bound that was exceeded by moves to and fro is measured again, and the patch applies.
    let deep = format!("/b{}", "/b".repeat(60));
    let mut to_and_fro = vec![json!({"op": "add", "path": "/b", "value": {}})];
    to_and_fro.extend((1..60).map(|n| json!({"op": "add", "path": "/b".repeat(n + 1), "value": {}})));
    for _ in 0..20 {
        to_and_fro.push(json!({"op": "move", "from": "/a", "path": deep}));
        to_and_fro.push(json!({"op": "move", "from": deep, "path": "/a"}));
    }
    assert_eq!(patch(json!({"a": {"k": 1}}), json!(to_and_fro)).unwrap()["a"], json!({"k": 1}));
}

proptest! {
    #[test]
    fn decoding_and_applying_never_panic(body in proptest::collection::vec(any::<u8>(), 0..80), path in "[/a-c0-9~-]{0,12}") {
        let _ = JsonPatch::decode(&body);
        for op in ["add", "remove", "replace", "test", "move", "copy"] {
            let _ = patch(json!({"a": [1, {"b": 2}], "c": "x"}), json!([{"op": op, "path": path, "from": path, "value": 1}]));
        }
    }
}
