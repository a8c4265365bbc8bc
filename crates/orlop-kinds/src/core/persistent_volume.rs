//! PersistentVolume: storage that outlives pods.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    quantity::Quantity,
};
use serde_json::{Value, json};

use super::pod;
use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{annotation, is_terminating, map, present, text, text_or, texts},
    defaulting,
    printer::{ColumnDefinition, PrinterColumns, age, name},
    quantities,
    storage::csi_driver,
    strategy::{RequestContext, Strategy},
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { returns_deleted_object: true, ..StrategyFlags::BUILTIN },
    columns: &COLUMNS,
    strategy: &PersistentVolume,
    ..BuiltinKind::new("", "persistentvolumes")
};

pub(crate) const MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
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

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::text("Capacity"),
        ColumnDefinition::text("Access Modes"),
        ColumnDefinition::text("Reclaim Policy"),
        ColumnDefinition::text("Status"),
        ColumnDefinition::text("Claim"),
        ColumnDefinition::text("StorageClass"),
        ColumnDefinition::text("VolumeAttributesClass"),
        ColumnDefinition::text("Reason"),
        ColumnDefinition::AGE,
        ColumnDefinition::wide("VolumeMode"),
    ],
    cells: |object, now| {
        let claim = present(object, "/spec/claimRef").map_or_else(String::new, |claim| {
            format!("{}/{}", text(claim, "/namespace"), text(claim, "/name"))
        });
        vec![
            name(object),
            quantities::canonical_text(object.pointer("/spec/capacity/storage")).into(),
            format_access_modes(&texts(object, "/spec/accessModes")).into(),
            text(object, "/spec/persistentVolumeReclaimPolicy").into(),
            phase(object).into(),
            claim.into(),
            storage_class_name(object).into(),
            text_or(object, "/spec/volumeAttributesClassName", "<unset>").into(),
            text(object, "/status/reason").into(),
            age(object, now),
            text_or(object, "/spec/volumeMode", "<unset>").into(),
        ]
    },
};

/// Returns the phase of a volume or claim; `Terminating` if it is deleted.
pub(crate) fn phase(object: &Value) -> &str {
    if is_terminating(object) { "Terminating" } else { text(object, "/status/phase") }
}

/// Returns the storage class of a volume or claim: the beta annotation, else the field.
pub(crate) fn storage_class_name(object: &Value) -> &str {
    match annotation(object, "volume.beta.kubernetes.io/storage-class") {
        "" => text(object, "/spec/storageClassName"),
        class => class,
    }
}

/// Formats the distinct access modes in short.
pub(crate) fn format_access_modes(modes: &[&str]) -> String {
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

pub(crate) struct PersistentVolume;

impl Strategy for PersistentVolume {
    fn set_defaults(&self, object: &mut Value) {
        if let Some(spec) = defaulting::object_mut(object, "spec") {
            defaulting::set_if_zero(spec, "persistentVolumeReclaimPolicy", "Retain");
            defaulting::set_if_absent(spec, "volumeMode", "Filesystem");
            if let Some(path) = defaulting::object_mut(spec, "hostPath") {
                defaulting::set_if_absent(path, "type", "");
            }
        }
        defaulting::set_if_absent(object, "status", json!({}));
        if let Some(status) = defaulting::object_mut(object, "status") {
            defaulting::set_if_zero(status, "phase", "Pending");
        }
    }

    fn prepare_for_create(&self, object: &mut Value, _context: &RequestContext<'_>) {
        object["status"] =
            json!({"phase": "Pending", "lastPhaseTransitionTime": object["metadata"]["creationTimestamp"]});
    }

    fn prepare_for_subresource_update(
        &self,
        _subresource: &str,
        object: &mut Value,
        old: &Value,
        context: &RequestContext<'_>,
    ) {
        const SINCE: &str = "/status/lastPhaseTransitionTime";
        let phase_changed = text(object, "/status/phase") != text(old, "/status/phase");
        let (given, before) = (text(object, SINCE), text(old, SINCE));
        let since = match phase_changed {
            false if given.is_empty() => before.to_owned(),
            true if given.is_empty() || given == before => context.now.to_string(),
            _ => return,
        };
        if !since.is_empty() {
            object["status"]["lastPhaseTransitionTime"] = since.into();
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let (spec, path) = (object.get("spec").unwrap_or(&Value::Null), FieldPath::root("spec"));
        let mut errors = validate_access_modes(spec, &path, "");
        errors.extend(validate_capacity(spec, &path.child("capacity")));
        let policies = &["Delete", "Recycle", "Retain"];
        errors.extend(validation::validate_supported(spec, "persistentVolumeReclaimPolicy", &path, policies));
        let mut sources = SOURCES.iter().filter(|source| present(spec, &format!("/{source}")).is_some());
        match sources.next() {
            None => errors.push(FieldError::required(&path, "must specify a volume type")),
            Some(_) => errors.extend(sources.map(|source| {
                FieldError::forbidden(&path.child(source), "may not specify more than 1 volume type")
            })),
        }
        errors.extend(validate_source(spec, &path));
        errors.extend(validate_node_affinity(spec, &path.child("nodeAffinity")));
        errors.extend(validate_class_and_mode(spec, &path));
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let sources = |object: &Value| -> Vec<Value> {
            SOURCES.iter().map(|source| object["spec"].get(source).cloned().unwrap_or_default()).collect()
        };
        if sources(object) != sources(old) {
            let detail = "spec.persistentvolumesource is immutable after creation";
            errors.push(FieldError::forbidden(
                &FieldPath::root("spec").child("persistentvolumesource"),
                detail,
            ));
        }
        errors.extend(validation::validate_immutable(
            &object["spec"],
            &old["spec"],
            "volumeMode",
            &FieldPath::nil(),
        ));
        errors
    }
}

/// Validates the volume source.
fn validate_source(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let given = SOURCES.iter().find_map(|kind| Some((*kind, present(spec, &format!("/{kind}"))?)));
    let Some((kind, source)) = given else { return Vec::new() };
    let at = path.child(kind);
    match kind {
        "csi" => {
            let mut errors = csi_driver::validate_driver_name(text(source, "/driver"), &at.child("driver"));
            errors.extend(validation::require_text(source, "volumeHandle", &at));
            for secret in ["controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef"]
            {
                if let Some(reference) = present(source, &format!("/{secret}")) {
                    let named = ["name", "namespace"].iter();
                    errors.extend(
                        named.filter_map(|field| {
                            validation::require_text(reference, field, &at.child(secret))
                        }),
                    );
                }
            }
            errors
        }
        "local" => validation::require_text(source, "path", &at).into_iter().collect(),
        // Their secret and endpoint references have other fields than in a pod.
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

/// Validates nodeAffinity, which a local volume requires.
fn validate_node_affinity(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let Some(affinity) = present(spec, "/nodeAffinity") else {
        let missing = present(spec, "/local")
            .map(|_| FieldError::required(path, "Local volume requires node affinity"));
        return missing.into_iter().collect();
    };
    match present(affinity, "/required") {
        Some(selector) => pod::validate_node_selector(selector, &path.child("required")),
        None => {
            vec![FieldError::required(&path.child("required"), "must specify required node constraints")]
        }
    }
}

/// Validates the access modes of a volume or claim.
pub(crate) fn validate_access_modes(spec: &Value, path: &FieldPath, none: &str) -> Vec<FieldError> {
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

/// Validates class names and volumeMode of a volume or claim.
pub(crate) fn validate_class_and_mode(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["storageClassName", "volumeAttributesClassName"] {
        let class = spec.get(field).and_then(Value::as_str).unwrap_or_default();
        if !class.is_empty() {
            errors.extend(validation::validate_dns_subdomain(class, &path.child(field)));
        }
    }
    errors.extend(validation::validate_supported(spec, "volumeMode", path, &["Block", "Filesystem"]));
    errors
}

fn validate_capacity(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let capacity = map(spec, "/capacity");
    let mut errors = Vec::new();
    if capacity.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    if !capacity.contains_key("storage") || capacity.len() > 1 {
        let given = spec.get("capacity").cloned().unwrap_or_default();
        errors.push(FieldError::not_supported(path, given, &["storage"]));
    }
    for (key, amount) in capacity {
        let path = path.key(key);
        if let Some(negative) = quantities::parse(amount).filter(Quantity::is_negative) {
            errors.push(FieldError::invalid(&path, negative.units(), "must be a valid resource quantity"));
        }
        errors.extend(quantities::validate_positive(amount, &path));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{printer::tests::row, validation::tests::messages};

    fn volume() -> Value {
        json!({"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
            "hostPath": {"path": "/x"}, "claimRef": {"namespace": "n", "name": "c"}}})
    }

    #[test]
    fn volume_defaults_are_set() {
        let mut object = volume();
        PersistentVolume.set_defaults(&mut object);
        assert_eq!(object["spec"]["persistentVolumeReclaimPolicy"], "Retain");
        assert_eq!(object["spec"]["volumeMode"], "Filesystem");
        assert_eq!(object["status"], json!({"phase": "Pending"}));
        assert!(messages(PersistentVolume.validate(&object)).is_empty());
        let expected =
            ["v", "1Gi", "RWO,RWX", "Retain", "Pending", "n/c", "", "<unset>", "", "<unknown>", "Filesystem"];
        assert_eq!(row(&COLUMNS, &object), expected);
    }

    #[test]
    fn volume_requires_one_source_capacity_and_access_modes() {
        assert_eq!(
            messages(PersistentVolume.validate(&json!({"spec": {}}))),
            [
                "spec.accessModes: Required value",
                "spec.capacity: Required value",
                r#"spec.capacity: Unsupported value: null: supported values: "storage""#,
                "spec: Required value: must specify a volume type",
            ]
        );
        let mut object = volume();
        object["spec"]["nfs"] = json!({});
        object["spec"]["accessModes"] = json!(["x", "ReadWriteOncePod", "ReadWriteOnce"]);
        object["spec"]["capacity"]["storage"] = "0".into();
        assert_eq!(
            messages(PersistentVolume.validate(&object)),
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
            messages(PersistentVolume.validate_update(&changed, &volume())),
            [
                "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation"
            ]
        );
    }
}
