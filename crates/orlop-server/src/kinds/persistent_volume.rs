//! Persistent volumes: storage that outlives pods.

use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::{Value, json};

use super::{
    check,
    columns::{Heading, Table, name},
    fill, pod, quantities,
    read::{annotation, is_deleted, map, present, text, text_or, texts},
    storage_drivers,
};
use crate::{
    object::now,
    registry::Hooks,
    table::{Columns, age},
};

pub(super) const MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const SOURCES: &[&str] = &[
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

static TABLE: Table = Table {
    headings: &[
        Heading::NAME,
        Heading::text("Capacity"),
        Heading::text("Access Modes"),
        Heading::text("Reclaim Policy"),
        Heading::text("Status"),
        Heading::text("Claim"),
        Heading::text("StorageClass"),
        Heading::text("VolumeAttributesClass"),
        Heading::text("Reason"),
        Heading::AGE,
        Heading::wide("VolumeMode"),
    ],
    cells: |object, now| {
        let claim = present(object, "/spec/claimRef").map_or_else(String::new, |claim| {
            format!("{}/{}", text(claim, "/namespace"), text(claim, "/name"))
        });
        vec![
            name(object),
            quantities::shown(object.pointer("/spec/capacity/storage")).into(),
            access_modes(&texts(object, "/spec/accessModes")).into(),
            text(object, "/spec/persistentVolumeReclaimPolicy").into(),
            phase(object).into(),
            claim.into(),
            class(object).into(),
            text_or(object, "/spec/volumeAttributesClassName", "<unset>").into(),
            text(object, "/status/reason").into(),
            age(object, now),
            text_or(object, "/spec/volumeMode", "<unset>").into(),
        ]
    },
};

/// How far a volume or claim is.
pub(super) fn phase(object: &Value) -> &str {
    if is_deleted(object) { "Terminating" } else { text(object, "/status/phase") }
}

/// The class of a volume or claim, by its field or the annotation it once was.
pub(super) fn class(object: &Value) -> &str {
    match annotation(object, "volume.beta.kubernetes.io/storage-class") {
        "" => text(object, "/spec/storageClassName"),
        class => class,
    }
}

/// Access modes in short, each once.
pub(super) fn access_modes(modes: &[&str]) -> String {
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    short
        .iter()
        .filter(|(mode, _)| modes.contains(mode))
        .map(|(_, short)| *short)
        .collect::<Vec<_>>()
        .join(",")
}

pub(super) struct PersistentVolume;

impl Hooks for PersistentVolume {
    fn default(&self, object: &mut Value) {
        if let Some(spec) = fill::child(object, "spec") {
            fill::empty(spec, "persistentVolumeReclaimPolicy", "Retain");
            fill::absent(spec, "volumeMode", "Filesystem");
            if let Some(path) = fill::child(spec, "hostPath") {
                fill::absent(path, "type", "");
            }
        }
        fill::absent(object, "status", json!({}));
        if let Some(status) = fill::child(object, "status") {
            fill::empty(status, "phase", "Pending");
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        object["status"] =
            json!({"phase": "Pending", "lastPhaseTransitionTime": object["metadata"]["creationTimestamp"]});
    }

    fn prepare_subresource(&self, _subresource: &str, object: &mut Value, old: &Value) {
        const SINCE: &str = "/status/lastPhaseTransitionTime";
        let phase_changed = text(object, "/status/phase") != text(old, "/status/phase");
        let (given, before) = (text(object, SINCE), text(old, SINCE));
        let since = match phase_changed {
            false if given.is_empty() => before.to_owned(),
            true if given.is_empty() || given == before => now().to_string(),
            _ => return,
        };
        if !since.is_empty() {
            object["status"]["lastPhaseTransitionTime"] = since.into();
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let (spec, path) = (object.get("spec").unwrap_or(&Value::Null), FieldPath::root("spec"));
        let mut errors = modes(spec, &path, "");
        errors.extend(capacity(spec, &path.child("capacity")));
        let policies = &["Delete", "Recycle", "Retain"];
        errors.extend(check::supported(spec, "persistentVolumeReclaimPolicy", &path, policies));
        let mut sources = SOURCES.iter().filter(|source| present(spec, &format!("/{source}")).is_some());
        match sources.next() {
            None => errors.push(FieldError::required(&path, "must specify a volume type")),
            Some(_) => errors.extend(sources.map(|source| {
                FieldError::forbidden(&path.child(source), "may not specify more than 1 volume type")
            })),
        }
        errors.extend(source(spec, &path));
        errors.extend(affinity(spec, &path.child("nodeAffinity")));
        errors.extend(class_and_mode(spec, &path));
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let source = |object: &Value| -> Vec<Value> {
            SOURCES.iter().map(|source| object["spec"].get(source).cloned().unwrap_or_default()).collect()
        };
        if source(object) != source(old) {
            let detail = "spec.persistentvolumesource is immutable after creation";
            errors.push(FieldError::forbidden(
                &FieldPath::root("spec").child("persistentvolumesource"),
                detail,
            ));
        }
        errors.extend(check::immutable(&object["spec"], &old["spec"], "volumeMode", &FieldPath::nil()));
        errors
    }

    fn columns(&self) -> Option<&dyn Columns> {
        Some(&TABLE)
    }
}

/// Where a volume is kept.
fn source(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let given = SOURCES.iter().find_map(|kind| Some((*kind, present(spec, &format!("/{kind}"))?)));
    let Some((kind, source)) = given else { return Vec::new() };
    let at = path.child(kind);
    match kind {
        "csi" => {
            let mut errors = storage_drivers::driver_name(text(source, "/driver"), &at.child("driver"));
            errors.extend(check::required(source, "volumeHandle", &at));
            for secret in ["controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef"]
            {
                if let Some(reference) = present(source, &format!("/{secret}")) {
                    let named = ["name", "namespace"].iter();
                    errors.extend(
                        named.filter_map(|field| check::required(reference, field, &at.child(secret))),
                    );
                }
            }
            errors
        }
        "local" => check::required(source, "path", &at).into_iter().collect(),
        // These name their secrets and endpoints otherwise than those of a pod do.
        "azureFile" | "glusterfs" | "flexVolume" | "storageos" => Vec::new(),
        "hostPath"
            if text(source, "/path") == "/" && text(spec, "/persistentVolumeReclaimPolicy") == "Recycle" =>
        {
            let detail = "may not be 'recycle' for a hostPath mount of '/'";
            vec![FieldError::forbidden(&path.child("persistentVolumeReclaimPolicy"), detail)]
        }
        _ => pod::volume_source(kind, source, &at),
    }
}

/// Which nodes see a volume; one that is on a node is seen by that one.
fn affinity(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let Some(affinity) = present(spec, "/nodeAffinity") else {
        let missing = present(spec, "/local")
            .map(|_| FieldError::required(path, "Local volume requires node affinity"));
        return missing.into_iter().collect();
    };
    match present(affinity, "/required") {
        Some(selector) => pod::node_selector(selector, &path.child("required")),
        None => {
            vec![FieldError::required(&path.child("required"), "must specify required node constraints")]
        }
    }
}

/// Access modes of a volume or claim.
pub(super) fn modes(spec: &Value, path: &FieldPath, none: &str) -> Vec<FieldError> {
    let (modes, path) = (texts(spec, "/accessModes"), path.child("accessModes"));
    let mut errors = Vec::new();
    if modes.is_empty() {
        errors.push(FieldError::required(&path, none));
    }
    errors.extend(
        modes
            .iter()
            .filter(|mode| !MODES.contains(mode))
            .map(|mode| FieldError::not_supported(&path, *mode, MODES)),
    );
    let others = modes.iter().any(|mode| MODES.contains(mode) && *mode != "ReadWriteOncePod");
    if modes.contains(&"ReadWriteOncePod") && others {
        errors.push(FieldError::forbidden(&path, "may not use ReadWriteOncePod with other access modes"));
    }
    errors
}

/// Class and mode of a volume or claim.
pub(super) fn class_and_mode(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["storageClassName", "volumeAttributesClassName"] {
        let class = spec.get(field).and_then(Value::as_str).unwrap_or_default();
        if !class.is_empty() {
            errors.extend(check::dns_subdomain(class, &path.child(field)));
        }
    }
    errors.extend(check::supported(spec, "volumeMode", path, &["Block", "Filesystem"]));
    errors
}

fn capacity(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let capacity = map(spec, "/capacity");
    let mut errors = Vec::new();
    if capacity.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    if !capacity.contains_key("storage") || capacity.len() > 1 {
        errors.push(FieldError::not_supported(path, Value::Object(capacity.clone()), &["storage"]));
    }
    errors.extend(capacity.iter().filter_map(|(key, amount)| quantities::positive(amount, &path.key(key))));
    errors
}

#[cfg(test)]
mod tests {
    use super::{super::check::tests::told, super::columns::tests::row, *};

    fn volume() -> Value {
        json!({"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
            "hostPath": {"path": "/x"}, "claimRef": {"namespace": "n", "name": "c"}}})
    }

    #[test]
    fn a_volume_gets_its_defaults() {
        let mut object = volume();
        PersistentVolume.default(&mut object);
        assert_eq!(object["spec"]["persistentVolumeReclaimPolicy"], "Retain");
        assert_eq!(object["spec"]["volumeMode"], "Filesystem");
        assert_eq!(object["status"], json!({"phase": "Pending"}));
        assert!(told(PersistentVolume.validate(&object)).is_empty());
        let expected =
            ["v", "1Gi", "RWO,RWX", "Retain", "Pending", "n/c", "", "<unset>", "", "<unknown>", "Filesystem"];
        assert_eq!(row(&TABLE, &object), expected);
    }

    #[test]
    fn a_volume_has_one_source_a_size_and_modes() {
        assert_eq!(
            told(PersistentVolume.validate(&json!({"spec": {}}))),
            [
                "spec.accessModes: Required value",
                "spec.capacity: Required value",
                r#"spec.capacity: Unsupported value: {}: supported values: "storage""#,
                "spec: Required value: must specify a volume type",
            ]
        );
        let mut object = volume();
        object["spec"]["nfs"] = json!({});
        object["spec"]["accessModes"] = json!(["x", "ReadWriteOncePod", "ReadWriteOnce"]);
        object["spec"]["capacity"]["storage"] = "0".into();
        assert_eq!(
            told(PersistentVolume.validate(&object)),
            [
                r#"spec.accessModes: Unsupported value: "x": supported values: "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod""#,
                "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes",
                r#"spec.capacity[storage]: Invalid value: "0": must be greater than zero"#,
                "spec.nfs: Forbidden: may not specify more than 1 volume type",
            ]
        );
        let mut changed = volume();
        changed["spec"]["hostPath"]["path"] = "/y".into();
        assert_eq!(
            told(PersistentVolume.validate_update(&changed, &volume())),
            [
                "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation"
            ]
        );
    }
}
