//! What storage drivers and their controllers write down: themselves, the nodes they run on, what they have room for,
//! what they have attached, and the classes of attributes they know.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    labels::validate_label_selector,
    names,
    object_meta::IMMUTABLE,
};
use serde_json::Value;

use super::{
    check, quantities,
    read::{list, map, present, repeats, text, texts},
    same::same,
    storage, storage_class,
};
use crate::{registry::Hooks, table::Columns};

const DRIVER_NAME_MAX: usize = 63;
const NODE_ID_MAX: usize = 256;
const TOKEN_SECONDS_MIN: i64 = 600;

/// The name of a driver: one of DNS, in whatever case.
pub(super) fn driver_name(name: &str, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    if name.len() > DRIVER_NAME_MAX {
        errors.push(FieldError::too_long(path, DRIVER_NAME_MAX));
    }
    let problems = names::dns1123_subdomain(&name.to_lowercase());
    errors.extend(check::each(path, name, problems));
    errors
}

/// What is wrong with a driver.
pub(super) fn driver(object: &Value) -> Vec<FieldError> {
    let spec = FieldPath::root("spec");
    let mut errors = Vec::new();
    let given = object.get("spec").unwrap_or(&Value::Null);
    errors.extend(check::supported(
        given,
        "fsGroupPolicy",
        &spec,
        &["File", "None", "ReadWriteOnceWithFSType"],
    ));
    let requests = list(object, "/spec/tokenRequests");
    let repeated = repeats(requests, |request| text(request, "/audience"));
    for ((index, request), repeated) in requests.iter().enumerate().zip(repeated) {
        let path = spec.child("tokenRequests").index(index);
        if repeated {
            errors.push(FieldError::duplicate(&path.child("audience"), text(request, "/audience")));
        }
        let seconds = present(request, "/expirationSeconds").and_then(Value::as_i64);
        if let Some(seconds) = seconds.filter(|seconds| *seconds < TOKEN_SECONDS_MIN) {
            let detail = "may not specify a duration less than 10 minutes";
            errors.push(FieldError::invalid(&path.child("expirationSeconds"), seconds, detail));
        }
    }
    let modes = ["Persistent", "Ephemeral"];
    for mode in texts(object, "/spec/volumeLifecycleModes") {
        if !modes.contains(&mode) {
            errors.push(FieldError::not_supported(&spec.child("volumeLifecycleModes"), mode, &modes));
        }
    }
    errors
}

/// What of a driver may not change.
pub(super) fn driver_update(object: &Value, old: &Value) -> Vec<FieldError> {
    let spec = FieldPath::root("spec");
    // Kubernetes misspells the first.
    let kept = [("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes")];
    let changed = kept.into_iter().filter_map(|(field, told)| {
        let of = |object: &Value| object.pointer(&format!("/spec/{field}")).cloned().unwrap_or_default();
        let (new, old) = (of(object), of(old));
        (!same(&new, &old)).then(|| FieldError::invalid(&spec.child(told), new, IMMUTABLE))
    });
    changed.collect()
}

pub(super) struct CsiNode;

impl Hooks for CsiNode {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let drivers = list(object, "/spec/drivers");
        let path = FieldPath::root("spec").child("drivers");
        let repeated = repeats(drivers, |driver| text(driver, "/name"));
        let mut errors = Vec::new();
        for ((index, driver), repeated) in drivers.iter().enumerate().zip(repeated) {
            let path = path.index(index);
            errors.extend(driver_name(text(driver, "/name"), &path.child("name")));
            match text(driver, "/nodeID") {
                "" => errors.push(FieldError::required(&path.child("nodeID"), "")),
                id if id.len() > NODE_ID_MAX => {
                    let detail = format!("must be {NODE_ID_MAX} characters or less");
                    errors.push(FieldError::invalid(&path.child("nodeID"), id, detail));
                }
                _ => {}
            }
            if let Some(allocatable) = present(driver, "/allocatable") {
                errors.extend(check::not_negative(allocatable, "count", &path.child("allocatable")));
            }
            errors.extend(topology_keys(driver, &path));
            if repeated {
                errors.push(FieldError::duplicate(&path.child("name"), text(driver, "/name")));
            }
        }
        errors
    }

    /// A driver may come and go; what one says of a node stays.
    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let before = list(old, "/spec/drivers");
        let changed = list(object, "/spec/drivers").iter().filter(|driver| {
            let known = before.iter().find(|before| text(before, "/name") == text(driver, "/name"));
            known.is_some_and(|known| !same(driver, known))
        });
        let path = FieldPath::root("spec").child("drivers");
        changed.map(|driver| FieldError::invalid(&path, driver.clone(), IMMUTABLE)).collect()
    }

    fn columns(&self) -> Option<&dyn Columns> {
        Some(&storage::CSI_NODES)
    }
}

fn topology_keys(driver: &Value, path: &FieldPath) -> Vec<FieldError> {
    let keys = list(driver, "/topologyKeys");
    let repeated = repeats(keys, Value::as_str);
    let mut errors = Vec::new();
    for (key, repeated) in keys.iter().map(|key| key.as_str().unwrap_or_default()).zip(repeated) {
        if repeated {
            errors.push(FieldError::duplicate(path, key));
        }
        if key.is_empty() {
            errors.push(FieldError::required(path, ""));
        }
        errors.extend(check::each(path, key, names::qualified_name(key)));
    }
    errors
}

/// How much room a driver has for volumes of a class. It has no columns of its own.
pub(super) struct CsiStorageCapacity;

impl Hooks for CsiStorageCapacity {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if let Some(topology) = present(object, "/nodeTopology") {
            errors.extend(validate_label_selector(topology, &FieldPath::root("nodeTopology")));
        }
        let class = text(object, "/storageClassName");
        errors.extend(check::dns_subdomain(class, &FieldPath::root("storageClassName")));
        let capacity = present(object, "/capacity");
        errors.extend(
            capacity.and_then(|amount| quantities::not_negative(amount, &FieldPath::root("capacity"))),
        );
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let root = FieldPath::nil();
        let kept = ["nodeTopology", "storageClassName"];
        kept.iter().filter_map(|field| check::immutable(object, old, field, &root)).collect()
    }
}

pub(super) struct VolumeAttachment;

impl Hooks for VolumeAttachment {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let spec = FieldPath::root("spec");
        let attacher = text(object, "/spec/attacher");
        let mut errors = match attacher {
            "" => vec![FieldError::required(&spec.child("attacher"), "")],
            given => driver_name(given, &spec.child("attacher")),
        };
        errors.extend(attached(object, &spec.child("source")));
        errors.extend(check::dns_subdomain(text(object, "/spec/nodeName"), &spec.child("nodeName")));
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        check::immutable(object, old, "spec", &FieldPath::nil()).into_iter().collect()
    }

    fn columns(&self) -> Option<&dyn Columns> {
        Some(&storage::VOLUME_ATTACHMENTS)
    }
}

/// What is attached: a volume by its name, or by all that is known of it.
fn attached(object: &Value, path: &FieldPath) -> Vec<FieldError> {
    let (name, inline) = (
        present(object, "/spec/source/persistentVolumeName").and_then(Value::as_str),
        present(object, "/spec/source/inlineVolumeSpec"),
    );
    let one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let by_name = path.child("persistentVolumeName");
    match (name, inline) {
        (None, None) => vec![FieldError::required(path, one)],
        (Some(_), Some(_)) => vec![FieldError::forbidden(path, one)],
        (Some(name), None) => {
            let detail = "must specify non empty persistentVolumeName";
            let mut errors: Vec<FieldError> =
                name.is_empty().then(|| FieldError::required(&by_name, detail)).into_iter().collect();
            errors.extend(check::dns_subdomain(name, &by_name));
            errors
        }
        (None, Some(volume)) => {
            let path = path.child("inlineVolumeSpec");
            let mut errors = Vec::new();
            let forbidden = "may not be specified in the context of inline volumes";
            for field in ["capacity", "claimRef", "persistentVolumeReclaimPolicy", "storageClassName"] {
                let given = volume.get(field).is_some_and(|value| match value {
                    Value::String(text) => !text.is_empty(),
                    Value::Object(map) => !map.is_empty(),
                    value => !value.is_null(),
                });
                if given {
                    errors.push(FieldError::forbidden(&path.child(field), forbidden));
                }
            }
            if present(volume, "/csi").is_none() {
                let detail = "has to be specified in the context of inline volumes";
                errors.push(FieldError::required(&path.child("csi"), detail));
            }
            if list(volume, "/accessModes").is_empty() {
                errors.push(FieldError::required(&path.child("accessModes"), ""));
            }
            errors
        }
    }
}

pub(super) struct VolumeAttributesClass;

impl Hooks for VolumeAttributesClass {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = storage_class::provisioner(object, "driverName");
        if map(object, "/parameters").is_empty() {
            let detail = "must contain at least one key/value pair";
            errors.push(FieldError::required(&FieldPath::root("parameters"), detail));
        }
        errors.extend(storage_class::parameters(object));
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let none = Value::Null;
        let changed = ["driverName", "parameters"]
            .into_iter()
            .filter(|field| !same(object.get(field).unwrap_or(&none), old.get(field).unwrap_or(&none)));
        changed
            .map(|field| {
                let detail = format!("updates to {field} are forbidden.");
                FieldError::forbidden(&FieldPath::root(field), detail)
            })
            .collect()
    }

    fn columns(&self) -> Option<&dyn Columns> {
        Some(&storage::VOLUME_ATTRIBUTES_CLASSES)
    }
}
