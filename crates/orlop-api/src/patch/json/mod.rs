//! JSON patch (RFC 6902), compatible with Kubernetes' Go library.
//!
//! Differences from the RFC: `replace` of a key that an object
//! lacks adds it; `test` of an absent key against null passes; an index may not be
//! negative; `add` at the root is refused; `copy` of a key that an object lacks copies
//! null.

mod depth_bound;
#[cfg(test)]
mod tests;

use super::PatchError;
use crate::{
    decode::{self, Decoded, StrictOrder},
    go_text,
};
use depth_bound::{DepthBound, Inserted};
use serde_json::Value;

/// Limit on the number of operations.
pub const OPERATIONS_MAX: usize = 10_000;
/// Limit on the bytes that all `copy` operations of a patch copy together.
const COPIED_BYTES_MAX: usize = 3 << 20;

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

/// Counts the segments of a JSON pointer.
fn segments(path: &str) -> usize {
    path.matches('/').count()
}
