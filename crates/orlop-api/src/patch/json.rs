//! JSON patch (RFC 6902), compatible with Kubernetes' Go library.
//!
//! Differences from the RFC: `replace` of a key that an object
//! lacks adds it; `test` of an absent key against null passes; an index may not be
//! negative; `add` at the root is refused; `copy` of a key that an object lacks copies
//! null.

use super::PatchError;
use crate::{
    decode::{self, Decoded, StrictOrder},
    go_text,
};
use serde_json::Value;

/// Limit on the number of operations.
pub const OPERATIONS_MAX: usize = 10_000;
/// Limit on the bytes that all `copy` operations of a patch copy together.
const COPIED_BYTES_MAX: usize = 3 << 20;
/// Nodes that depth checks of one patch may visit.
const MEASURED_NODES_MAX: usize = 10_000_000;

/// A decoded JSON patch.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPatch {
    operations: Vec<Operation>,
    strict_errors: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
struct Operation {
    kind: String,
    path: Option<String>,
    from: Option<String>,
    value: Option<Value>,
}

impl JsonPatch {
    pub fn decode(body: &[u8]) -> Result<Self, PatchError> {
        Self::read(decode::json(body)?, body, true)
    }

    /// Parses a decoded patch. Strict decoding reports the Go type that Kubernetes decodes
    /// into first.
    pub fn read(decoded: Decoded, body: &[u8], strictly: bool) -> Result<Self, PatchError> {
        let mismatched = |value: &Value, strict_type: &str, lax_type: &str| {
            let expected = if strictly { strict_type } else { lax_type };
            let found = go_text::json_type(value);
            PatchError::Malformed(format!("json: cannot unmarshal {found} into Go value of type {expected}"))
        };
        let unknown = unknown_fields(&decoded.value);
        let strict_errors = decoded.strict_errors(body, unknown, StrictOrder::Document);
        let strict_errors = strict_errors.into_iter().map(|error| format!("json patch {error}")).collect();
        let value = decoded.value;
        let Value::Array(list) = value else {
            if value.is_null() {
                return Ok(Self { operations: Vec::new(), strict_errors });
            }
            return Err(mismatched(&value, "[]handlers.jsonPatchOp", "jsonpatch.Patch"));
        };
        if list.len() > OPERATIONS_MAX {
            return Err(PatchError::TooManyOperations(list.len()));
        }
        let operation = |item: Value| {
            let mut map = match item {
                Value::Object(map) => map,
                // An empty operation, which fails when applied.
                Value::Null => serde_json::Map::new(),
                other => return Err(mismatched(&other, "handlers.jsonPatchOp", "jsonpatch.Operation")),
            };
            let text = |value: Option<Value>| value.and_then(|value| value.as_str().map(str::to_owned));
            Ok(Operation {
                kind: text(map.remove("op")).unwrap_or_else(|| "unknown".to_owned()),
                path: text(map.remove("path")),
                from: text(map.remove("from")),
                value: map.remove("value"),
            })
        };
        let operations = list.into_iter().map(operation).collect::<Result<_, _>>()?;
        Ok(Self { operations, strict_errors })
    }

    /// Returns the strict decoding errors of the patch itself.
    pub fn strict_errors(&self) -> &[String] {
        &self.strict_errors
    }

    /// Applies every operation, or none.
    pub fn apply(&self, object: &Value) -> Result<Value, PatchError> {
        let mut document = object.clone();
        let mut copied_bytes = 0;
        let mut depth = DepthBound::of(&document);
        for operation in &self.operations {
            let inserted =
                operation.apply(&mut document, &mut copied_bytes).map_err(PatchError::DoesNotApply)?;
            depth.insert(inserted, &document)?;
        }
        Ok(document)
    }
}

/// Depth of a value that an operation inserted, as far as it is known.
#[derive(Clone, Copy, Debug)]
enum Inserted {
    Nothing,
    /// A value of this depth below a path of this length.
    At {
        path: usize,
        depth: usize,
    },
    /// A subtree of the document, moved between paths of these lengths.
    Moved {
        from: usize,
        path: usize,
    },
}

/// Upper bound of the document's depth while a patch is applied.
///
/// Operations nest what earlier ones nested, and everything that walks a document relies on its depth limit. Measuring
/// the document after each operation is quadratic, so each operation raises a bound, and the document is measured only
/// where the bound exceeds the limit.
struct DepthBound {
    bound: usize,
    /// Nodes that measuring may still visit.
    nodes_left: usize,
}

impl DepthBound {
    fn of(document: &Value) -> Self {
        Self { bound: decode::depth(document), nodes_left: MEASURED_NODES_MAX }
    }

    fn insert(&mut self, inserted: Inserted, document: &Value) -> Result<(), PatchError> {
        let depth = match inserted {
            Inserted::Nothing => return Ok(()),
            Inserted::At { path, depth } => path + depth,
            Inserted::Moved { from, path } => path + self.bound.saturating_sub(from),
        };
        self.bound = self.bound.max(depth);
        if self.bound > decode::DEPTH_MAX {
            let nodes = decode::count_nodes(document, self.nodes_left).ok_or_else(|| {
                PatchError::DoesNotApply("Unable to complete the patch: it nests too many values".to_owned())
            })?;
            self.nodes_left -= nodes;
            decode::check_depth(document)?;
            self.bound = decode::depth(document);
        }
        Ok(())
    }
}

/// Counts the segments of a JSON pointer.
fn segments(path: &str) -> usize {
    path.matches('/').count()
}

/// Returns unknown fields of operations.
fn unknown_fields(patch: &Value) -> Vec<String> {
    let operations = patch.as_array().into_iter().flatten().enumerate();
    operations
        .flat_map(|(index, operation)| {
            let fields = operation.as_object().into_iter().flat_map(|fields| fields.keys());
            let unknown = fields.filter(|field| !["op", "path", "from", "value"].contains(&field.as_str()));
            unknown.map(move |field| format!("[{index}].{field}"))
        })
        .collect()
}

impl Operation {
    fn apply(&self, document: &mut Value, copied_bytes: &mut usize) -> Result<Inserted, String> {
        let kind = &self.kind;
        let undecodable = |what: &str| format!("{kind} operation failed to decode {what}: missing value");
        let path = || self.path.as_deref().ok_or_else(|| undecodable("path"));
        let from = || self.from.as_deref().ok_or_else(|| undecodable("from"));
        let value = || self.value.clone().unwrap_or(Value::Null);
        match kind.as_str() {
            "add" => {
                let (path, value) = (path()?, value());
                let inserted = Inserted::At { path: segments(path), depth: decode::depth(&value) };
                add(document, path, value, || {
                    format!("add operation does not apply: doc is missing path: \"{path}\"")
                })?;
                Ok(inserted)
            }
            "remove" => {
                let path = path()?;
                remove(document, path, || {
                    format!("remove operation does not apply: doc is missing path: \"{path}\"")
                })
                .map(|_| Inserted::Nothing)
            }
            "replace" => {
                let (path, value) = (path()?, value());
                let inserted = Inserted::At { path: segments(path), depth: decode::depth(&value) };
                replace(document, path, value).map(|()| inserted)
            }
            "move" => {
                let from = from()?;
                let taken = remove(document, from, || {
                    format!("move operation does not apply: doc is missing from path: {from}")
                })?;
                let path = path()?;
                add(document, path, taken, || {
                    format!("move operation does not apply: doc is missing destination path: {path}")
                })?;
                Ok(Inserted::Moved { from: segments(from), path: segments(path) })
            }
            "copy" => {
                let from = from()?;
                let copied = copied(document, from)?;
                *copied_bytes += copied.to_string().len();
                if *copied_bytes > COPIED_BYTES_MAX {
                    return Err(format!(
                        "Unable to complete the copy, the accumulated size increase of copy is {copied_bytes}, exceeding the limit {COPIED_BYTES_MAX}"
                    ));
                }
                let path = path()?;
                let inserted = Inserted::At { path: segments(path), depth: decode::depth(&copied) };
                add(document, path, copied, || {
                    format!("copy operation does not apply: doc is missing destination path: {path}")
                })?;
                Ok(inserted)
            }
            "test" => test(document, path()?, &value()).map(|()| Inserted::Nothing),
            other => Err(format!("Unexpected kind: {other}")),
        }
    }
}

fn unescape(segment: &str) -> String {
    segment.replace("~1", "/").replace("~0", "~")
}

/// Returns the parent of a path and its last segment.
fn parent<'d>(document: &'d mut Value, path: &str) -> Option<(&'d mut Value, String)> {
    let (before, last) = path.rsplit_once('/')?;
    let mut value = document;
    for segment in before.split('/').skip(1) {
        value = step_mut(value, &unescape(segment))?;
    }
    (value.is_object() || value.is_array()).then(|| (value, unescape(last)))
}

fn step_mut<'d>(value: &'d mut Value, key: &str) -> Option<&'d mut Value> {
    match value {
        Value::Object(map) => map.get_mut(key),
        Value::Array(items) => items.get_mut(index(key).ok()?),
        _ => None,
    }
}

/// Returns the value that `copy` takes: null if the object lacks the key, as in Go.
fn copied(document: &mut Value, from: &str) -> Result<Value, String> {
    let missing = || format!("copy operation does not apply: doc is missing from path: {from}");
    match parent(document, from).ok_or_else(missing)? {
        (Value::Object(map), key) => Ok(map.get(&key).cloned().unwrap_or_default()),
        (Value::Array(items), key) => items.get(index(&key)?).cloned().ok_or_else(missing),
        _ => Err(missing()),
    }
}

fn index(key: &str) -> Result<usize, String> {
    key.parse().map_err(|_| match key.parse::<i64>() {
        Ok(negative) => format!("Unable to access invalid index: {negative}: invalid index referenced"),
        Err(_) => format!("value was not a proper array index: '{key}'"),
    })
}

fn add(document: &mut Value, path: &str, value: Value, missing: impl Fn() -> String) -> Result<(), String> {
    let (parent, key) = parent(document, path).ok_or_else(&missing)?;
    match parent {
        Value::Object(map) => drop(map.insert(key, value)),
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let at = index(&key)?;
            if at > items.len() {
                return Err(format!("Unable to access invalid index: {at}: invalid index referenced"));
            }
            items.insert(at, value);
        }
        _ => return Err(missing()),
    }
    Ok(())
}

fn remove(document: &mut Value, path: &str, missing: impl Fn() -> String) -> Result<Value, String> {
    let (parent, key) = parent(document, path).ok_or_else(&missing)?;
    match parent {
        Value::Object(map) => {
            map.remove(&key).ok_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value"))
        }
        Value::Array(items) => {
            let at = index(&key)?;
            if at >= items.len() {
                return Err(format!("Unable to access invalid index: {at}: invalid index referenced"));
            }
            Ok(items.remove(at))
        }
        _ => Err(missing()),
    }
}

fn replace(document: &mut Value, path: &str, value: Value) -> Result<(), String> {
    if path.is_empty() {
        // Other values are ignored: the Go library loses their error.
        if value.is_object() || value.is_array() {
            *document = value;
        }
        return Ok(());
    }
    let missing = || format!("replace operation does not apply: doc is missing path: {path}: missing value");
    let (parent, key) = parent(document, path).ok_or_else(missing)?;
    match parent {
        Value::Object(map) => drop(map.insert(key, value)),
        Value::Array(items) => {
            let found = index(&key).ok().and_then(|at| items.get_mut(at));
            *found.ok_or_else(|| {
                format!("replace operation does not apply: doc is missing key: {path}: missing value")
            })? = value;
        }
        _ => return Err(missing()),
    }
    Ok(())
}

fn test(document: &mut Value, path: &str, expected: &Value) -> Result<(), String> {
    let holds = if path.is_empty() {
        document == expected
    } else {
        let missing = || format!("test operation does not apply: is missing path: {path}: missing value");
        match parent(document, path).ok_or_else(missing)? {
            (Value::Object(map), key) => map.get(&key).unwrap_or(&Value::Null) == expected,
            (Value::Array(items), key) => {
                let at = index(&key)?;
                let found = items.get(at).ok_or_else(|| {
                    format!("error in test for path: '{path}': Unable to access invalid index: {at}")
                })?;
                found == expected
            }
            _ => return Err(missing()),
        }
    };
    if holds { Ok(()) } else { Err(format!("testing value {path} failed: test failed")) }
}

#[cfg(test)]
mod tests {
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
            (
                json!({"a": [1, 3]}),
                json!([{"op": "add", "path": "/a/1", "value": 2}]),
                json!({"a": [1, 2, 3]}),
            ),
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
            (
                json!({"a": 1}),
                json!([{"op": "copy", "from": "/none", "path": "/b"}]),
                json!({"a": 1, "b": null}),
            ),
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
            (
                413,
                "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
            )
        );
        // Copies stop at the size limit, nesting at the depth limit.
        let double = json!([{"op": "copy", "from": "/a", "path": "/a/x"}, {"op": "copy", "from": "/a", "path": "/a/y"}]);
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
}
