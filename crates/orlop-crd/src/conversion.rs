//! Conversion between versions: strategy None or webhook.
//!
//! The server calls the webhook; this module builds the request ([`conversion_request`]) and validates the response
//! ([`objects_of_response`]).

use orlop_api::field_error::{FieldPath, aggregate};
use orlop_api::go_text::{quote, type_name};
use orlop_api::group_version::GroupVersionKind;
use orlop_api::labels;
use orlop_api::object_meta;
use orlop_api::schema::unstructured::{list, text};
use serde_json::{Map, Value, json};

const GROUP: &str = "apiextensions.k8s.io";

/// Converts with strategy None: only apiVersion changes.
pub fn set_api_version(object: &mut Value, api_version: &str) {
    if let Some(map) = object.as_object_mut() {
        map.insert("apiVersion".to_owned(), api_version.into());
    }
}

/// Returns whether an object has another apiVersion than requested.
pub fn needs_conversion(object: &Value, api_version: &str) -> bool {
    text(object, "apiVersion") != api_version
}

/// Returns the `ConversionReview` for objects to convert to `api_version`, in the first review version that
/// both sides support. Send only objects that need it: [`needs_conversion`].
pub fn conversion_request(
    review_versions: &[String],
    uid: &str,
    api_version: &str,
    objects: Vec<Value>,
) -> Result<Value, String> {
    let understood = review_versions.iter().find(|version| matches!(version.as_str(), "v1" | "v1beta1"));
    let version = understood.ok_or("no supported conversion review versions")?;
    Ok(json!({
        "kind": "ConversionReview",
        "apiVersion": format!("{GROUP}/{version}"),
        "request": {"uid": uid, "desiredAPIVersion": api_version, "objects": objects},
    }))
}

/// Returns the validated objects of a webhook's response, with their original metadata. `kind` is the requested kind
/// for error messages: an object's or its list's.
pub fn objects_of_response(
    request: &Value,
    kind: &GroupVersionKind,
    response: Value,
) -> Result<Vec<Value>, String> {
    let asked = request.get("request").unwrap_or(&Value::Null);
    let originals = list(asked, "objects");
    let called = format!("{}/{}, Kind={}", kind.group, kind.version, kind.kind);
    let objects = converted_objects(request, response)
        .map_err(|why| format!("conversion webhook for {called} failed: {why}"))?;
    if objects.len() != originals.len() {
        return Err(format!(
            "conversion webhook for {called} returned {} objects, expected {}",
            objects.len(),
            originals.len()
        ));
    }
    let wanted = text(asked, "desiredAPIVersion");
    let alone = originals.iter().all(|original| text(original, "kind") == kind.kind);
    let check = |(index, (object, original)): (usize, (Value, &Value))| {
        check_converted(object, original, wanted).map_err(|problem| {
            let (what, why) = problem.describe((!alone).then_some(index));
            format!("conversion webhook for {called} returned invalid {what}: {why}")
        })
    };
    objects.into_iter().zip(originals).enumerate().map(check).collect()
}

/// Returns the objects of a successful response.
fn converted_objects(request: &Value, mut response: Value) -> Result<Vec<Value>, String> {
    let version = text(request, "apiVersion");
    // The uid of v1beta1 responses is not validated, as in Kubernetes.
    let strict = version == "apiextensions.k8s.io/v1";
    if strict && (text(&response, "apiVersion") != version || text(&response, "kind") != "ConversionReview") {
        let found = GroupVersionKind::of(&response);
        return Err(format!(
            "expected webhook response of {GROUP}/v1, Kind=ConversionReview, got {}/{}, Kind={}",
            found.group, found.version, found.kind
        ));
    }
    let Some(answer) = response.get_mut("response").filter(|answer| !answer.is_null()) else {
        return Err("no response provided".to_owned());
    };
    let uid = request.get("request").map(|request| text(request, "uid")).unwrap_or_default();
    if strict && text(answer, "uid") != uid {
        return Err(format!("expected response.uid={}, got {}", quote(uid), quote(text(answer, "uid"))));
    }
    let result = answer.get("result").unwrap_or(&Value::Null);
    if text(result, "status") != "Success" {
        let message = text(result, "message");
        return Err(if message.is_empty() {
            format!("response.result.status was '{}', not 'Success'", text(result, "status"))
        } else {
            message.to_owned()
        });
    }
    match answer.get_mut("convertedObjects").map(Value::take) {
        Some(Value::Array(objects)) => Ok(objects),
        _ => Ok(Vec::new()),
    }
}

/// Error of a converted object.
enum ObjectError {
    Type(String),
    Identity(String),
    Metadata(String),
}

impl ObjectError {
    /// Returns the field and the reason, of a single object or of a list item.
    fn describe(self, index: Option<usize>) -> (String, String) {
        match (self, index) {
            (Self::Type(why), None) => ("object at index 0".to_owned(), why),
            (Self::Identity(why), None) => ("object".to_owned(), why),
            (Self::Metadata(why), None) => ("metadata".to_owned(), why),
            (Self::Type(why) | Self::Identity(why), Some(index)) => {
                (format!("converted object at index {index}"), why)
            }
            (Self::Metadata(why), Some(index)) => (format!("metadata in object at index {index}"), why),
        }
    }
}

fn check_converted(mut object: Value, original: &Value, wanted: &str) -> Result<Value, ObjectError> {
    let (found, kind) = (text(&object, "apiVersion"), text(&object, "kind"));
    if found != wanted {
        return Err(ObjectError::Type(format!("invalid groupVersion (expected {wanted}, received {found})")));
    }
    let expected = text(original, "kind");
    if kind != expected {
        return Err(ObjectError::Type(format!("invalid kind (expected {expected}, received {kind})")));
    }
    let (before, after) = (object_meta::of(original), object_meta::of(&object));
    for (key, called) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (before, after) = (object_meta::text(before, key), object_meta::text(after, key));
        if before != after {
            return Err(ObjectError::Identity(format!("must have the same {called}: {before} != {after}")));
        }
    }
    restore_metadata(&mut object, original).map_err(ObjectError::Metadata)?;
    Ok(object)
}

/// Restores metadata except labels and annotations, which webhooks may change.
fn restore_metadata(object: &mut Value, original: &Value) -> Result<(), String> {
    let Some(map) = object.as_object_mut() else {
        return Err("missing metadata in converted object".to_owned());
    };
    let answered = match map.remove("metadata") {
        None => return Err("missing metadata in converted object".to_owned()),
        Some(Value::Object(answered)) => answered,
        Some(other) => {
            return Err(format!("invalid metadata of type {} in converted object", type_name(&other)));
        }
    };
    let mut metadata = object_meta::of(original).clone();
    for key in ["labels", "annotations"] {
        let entries = match answered.get(key) {
            None | Some(Value::Null) => {
                metadata.remove(key);
                continue;
            }
            Some(Value::Object(entries)) => entries,
            Some(other) => {
                let kind = type_name(other);
                return Err(format!("invalid metadata.{key} of type {kind} in converted object"));
            }
        };
        if let Some((name, value)) = entries.iter().find(|(_, value)| !value.is_string()) {
            let kind = type_name(value);
            return Err(format!(
                "metadata.{key}[{name}] must be a string, but is {kind} in converted object"
            ));
        }
        if metadata.get(key).and_then(Value::as_object) != Some(entries) {
            check_entries(key, entries)?;
        }
        metadata.insert(key.to_owned(), Value::Object(entries.clone()));
    }
    map.insert("metadata".to_owned(), Value::Object(metadata));
    Ok(())
}

fn check_entries(key: &str, entries: &Map<String, Value>) -> Result<(), String> {
    let metadata = FieldPath::root("metadata");
    let errors = if key == "labels" {
        labels::validate(entries, &metadata.child("labels"))
    } else {
        object_meta::validate_annotations(entries, &metadata.child("annotation"))
    };
    if errors.is_empty() { Ok(()) } else { Err(aggregate(&errors)) }
}
