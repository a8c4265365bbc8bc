//! Validation of volumes and volume mounts.

use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::Value;

use super::{
    legacy_volumes,
    projected_volumes::validate_projected,
    volume_files::{
        validate_downward_api_file, validate_file_mode, validate_key_to_path, validate_local_descending_path,
        validate_no_backsteps,
    },
};
use crate::{
    accessors::{flag, list, mark_repeated, present, text},
    core::persistent_volume_claim,
    quantities,
    storage::csi_driver,
    validation,
};

const HOST_PATH_TYPES: &[&str] =
    &["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

/// A valid volume that containers may mount.
pub(crate) struct Mountable<'a> {
    name: &'a str,
    claimed: bool,
}

/// Validates the volumes and returns those that may be mounted.
pub(crate) fn validate_volumes<'a>(
    spec: &'a Value,
    path: &FieldPath,
) -> (Vec<Mountable<'a>>, Vec<FieldError>) {
    let mut good: Vec<Mountable<'_>> = Vec::new();
    let mut errors = Vec::new();
    for (index, volume) in list(spec, "/volumes").iter().enumerate() {
        let path = path.index(index);
        let mut found = validate_volume(volume, &path);
        let name = text(volume, "/name");
        match name {
            "" => found.push(FieldError::required(&path.child("name"), "")),
            name => found.extend(validation::validate_dns_label(name, &path.child("name"))),
        }
        if good.iter().any(|other| other.name == name) {
            found.push(FieldError::duplicate(&path.child("name"), name));
        }
        if found.is_empty() {
            let claimed = ["/persistentVolumeClaim", "/ephemeral"]
                .iter()
                .any(|source| present(volume, source).is_some());
            good.push(Mountable { name, claimed });
        }
        errors.extend(found);
    }
    (good, errors)
}

/// Validates a volume: exactly one source.
fn validate_volume(volume: &Value, path: &FieldPath) -> Vec<FieldError> {
    let given = volume.as_object().into_iter().flatten();
    let mut given = given.filter(|(field, source)| *field != "name" && !source.is_null());
    let Some((kind, first)) = given.next() else {
        return vec![FieldError::required(path, "must specify a volume type")];
    };
    let mut errors = validate_source(kind, first, &path.child(kind));
    errors.extend(given.map(|(kind, _)| {
        FieldError::forbidden(&path.child(kind), "may not specify more than 1 volume type")
    }));
    errors
}

/// Validates a volume source.
pub(crate) fn validate_source(kind: &str, source: &Value, path: &FieldPath) -> Vec<FieldError> {
    let required = |fields: &[&str]| -> Vec<FieldError> {
        fields.iter().filter_map(|field| validation::require_text(source, field, path)).collect()
    };
    match kind {
        "hostPath" => match text(source, "/path") {
            "" => required(&["path"]),
            given => {
                let mut errors = validate_no_backsteps(given, &path.child("path"));
                errors.extend(validation::validate_supported(source, "type", path, HOST_PATH_TYPES));
                errors
            }
        },
        "secret" | "configMap" => {
            let mut errors = required(&[if kind == "secret" { "secretName" } else { "name" }]);
            errors.extend(validate_file_mode(source, "defaultMode", path));
            errors.extend(validation::validate_items(source, "items", path, validate_key_to_path));
            errors
        }
        "downwardAPI" => {
            let mut errors: Vec<FieldError> =
                validate_file_mode(source, "defaultMode", path).into_iter().collect();
            errors.extend(
                list(source, "/items").iter().flat_map(|item| validate_downward_api_file(item, path)),
            );
            errors
        }
        "projected" => validate_projected(source, path),
        "persistentVolumeClaim" => required(&["claimName"]),
        "nfs" => {
            let mut errors = required(&["server", "path"]);
            let given = text(source, "/path");
            if !given.starts_with('/') {
                errors.push(FieldError::invalid(&path.child("path"), given, "must be an absolute path"));
            }
            errors
        }
        "csi" => {
            let mut errors = csi_driver::validate_driver_name(text(source, "/driver"), &path.child("driver"));
            if let Some(secret) = present(source, "/nodePublishSecretRef") {
                errors.extend(validation::require_text(secret, "name", &path.child("nodePublishSecretRef")));
            }
            errors
        }
        "emptyDir" => {
            let limit = present(source, "/sizeLimit").and_then(quantities::parse);
            let detail = "SizeLimit field must be a valid resource quantity";
            let negative = limit.is_some_and(|limit| limit.is_negative());
            negative.then(|| FieldError::forbidden(&path.child("sizeLimit"), detail)).into_iter().collect()
        }
        "ephemeral" => match present(source, "/volumeClaimTemplate") {
            None => vec![FieldError::required(&path.child("volumeClaimTemplate"), "")],
            Some(template) => {
                let path = path.child("volumeClaimTemplate").child("spec");
                persistent_volume_claim::validate_spec(template.get("spec").unwrap_or(&Value::Null), &path)
            }
        },
        other => legacy_volumes::validate_source(other, source, path),
    }
}

/// Validates a container's volume mounts and devices.
pub(crate) fn validate_volume_mounts(
    container: &Value,
    volumes: &[Mountable<'_>],
    path: &FieldPath,
) -> Vec<FieldError> {
    let (mounts, devices) = (list(container, "/volumeMounts"), list(container, "/volumeDevices"));
    let mut errors = Vec::new();
    let at = path.child("volumeMounts");
    let repeated = mark_repeated(mounts, |mount| text(mount, "/mountPath"));
    for ((index, mount), repeated) in mounts.iter().enumerate().zip(repeated) {
        let path = at.index(index);
        let (name, target) = (text(mount, "/name"), text(mount, "/mountPath"));
        errors.extend(validation::require_text(mount, "name", &path));
        if !volumes.iter().any(|volume| volume.name == name) {
            errors.push(FieldError::not_found(&path.child("name"), name));
        }
        errors.extend(validation::require_text(mount, "mountPath", &path));
        if repeated {
            errors.push(FieldError::invalid(&path.child("mountPath"), target, "must be unique"));
        }
        if devices.iter().any(|device| text(device, "/name") == name) {
            errors.push(FieldError::invalid(
                &path.child("name"),
                name,
                "must not already exist in volumeDevices",
            ));
        }
        if devices.iter().any(|device| text(device, "/devicePath") == target) {
            let detail = "must not already exist as a path in volumeDevices";
            errors.push(FieldError::invalid(&path.child("mountPath"), target, detail));
        }
        errors.extend(validate_sub_paths(mount, &at, &path));
        errors.extend(validate_mount_propagation(mount, container, &at));
        errors.extend(validate_recursive_read_only(mount, &at.child("recursiveReadOnly")));
    }
    errors.extend(self::validate_volume_devices(container, volumes, &path.child("volumeDevices")));
    errors
}

/// Validates subPath and subPathExpr. Kubernetes reports them without the mount's index, except for their conflict.
fn validate_sub_paths(mount: &Value, at: &FieldPath, path: &FieldPath) -> Vec<FieldError> {
    let (sub, expression) = (text(mount, "/subPath"), text(mount, "/subPathExpr"));
    let mut errors = validate_local_descending_path(sub, &at.child("subPath"));
    if !expression.is_empty() && !sub.is_empty() {
        let detail = "subPathExpr and subPath are mutually exclusive";
        errors.push(FieldError::invalid(&path.child("subPathExpr"), expression, detail));
    }
    errors.extend(validate_local_descending_path(expression, &at.child("subPathExpr")));
    errors
}

fn validate_mount_propagation(mount: &Value, container: &Value, path: &FieldPath) -> Vec<FieldError> {
    let kinds = &["Bidirectional", "HostToContainer", "None"];
    let mut errors: Vec<FieldError> =
        validation::validate_supported(mount, "mountPropagation", path, kinds).into_iter().collect();
    if text(mount, "/mountPropagation") == "Bidirectional" && !flag(container, "/securityContext/privileged")
    {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        errors.push(FieldError::forbidden(&path.child("mountPropagation"), detail));
    }
    errors
}

/// Validates recursiveReadOnly. Kubernetes reports it without the mount's index.
fn validate_recursive_read_only(mount: &Value, path: &FieldPath) -> Vec<FieldError> {
    let (modes, given) = (["Disabled", "Enabled", "IfPossible"], text(mount, "/recursiveReadOnly"));
    match given {
        "" | "Disabled" => Vec::new(),
        "Enabled" | "IfPossible" => {
            let mut errors = Vec::new();
            if !flag(mount, "/readOnly") {
                errors.push(FieldError::forbidden(path, "may only be specified when readOnly is true"));
            }
            if !matches!(text(mount, "/mountPropagation"), "" | "None") {
                let detail = "may only be specified when mountPropagation is None or not specified";
                errors.push(FieldError::forbidden(path, detail));
            }
            errors
        }
        other => vec![FieldError::not_supported(path, other, &modes)],
    }
}

fn validate_volume_devices(
    container: &Value,
    volumes: &[Mountable<'_>],
    path: &FieldPath,
) -> Vec<FieldError> {
    let devices = list(container, "/volumeDevices");
    let mut errors = Vec::new();
    let names = mark_repeated(devices, |device| text(device, "/name"));
    let targets = mark_repeated(devices, |device| text(device, "/devicePath"));
    let repeated = names.into_iter().zip(targets);
    for ((index, device), (repeated_name, repeated_target)) in devices.iter().enumerate().zip(repeated) {
        let path = path.index(index);
        let (name, target) = (text(device, "/name"), text(device, "/devicePath"));
        errors.extend(validation::require_text(device, "name", &path));
        if repeated_name {
            errors.push(FieldError::invalid(&path.child("name"), name, "must be unique"));
        }
        match volumes.iter().find(|volume| volume.name == name) {
            Some(volume) if !volume.claimed => {
                let detail =
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.push(FieldError::invalid(&path.child("name"), name, detail));
            }
            Some(_) => {}
            None => errors.push(FieldError::not_found(&path.child("name"), name)),
        }
        errors.extend(validation::require_text(device, "devicePath", &path));
        if repeated_target {
            errors.push(FieldError::invalid(&path.child("devicePath"), target, "must be unique"));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::tests::messages;

    #[test]
    fn volume_requires_name_and_one_source() {
        let validation_errors = |volume: Value| {
            messages(validate_volumes(&json!({"volumes": [volume]}), &FieldPath::root("v")).1)
        };
        assert!(validation_errors(json!({"name": "a", "emptyDir": {}})).is_empty());
        assert_eq!(
            validation_errors(json!({"name": "a"})),
            ["v[0]: Required value: must specify a volume type"]
        );
        assert_eq!(
            validation_errors(json!({"emptyDir": {}, "hostPath": {"path": "/"}})),
            [
                "v[0].hostPath: Forbidden: may not specify more than 1 volume type",
                "v[0].name: Required value"
            ]
        );
        assert_eq!(
            validation_errors(json!({"name": "a", "secret": {"defaultMode": 1000}})),
            [
                "v[0].secret.secretName: Required value",
                "v[0].secret.defaultMode: Invalid value: 1000: must be a number between 0 and 0777 (octal), both inclusive"
            ]
        );
        assert_eq!(
            validation_errors(
                json!({"name": "a", "configMap": {"name": "c", "items": [{"key": "k", "path": "../x"}]}})
            ),
            [r#"v[0].configMap.items[0].path: Invalid value: "../x": must not contain '..'"#]
        );
        assert_eq!(
            validation_errors(json!({"name": "a", "persistentVolumeClaim": {}})),
            ["v[0].persistentVolumeClaim.claimName: Required value"]
        );
        assert_eq!(
            validation_errors(json!({"name": "a", "hostPath": {"path": "/x", "type": "Pipe"}})),
            [
                r#"v[0].hostPath.type: Unsupported value: "Pipe": supported values: "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket""#
            ]
        );
        assert_eq!(
            validation_errors(
                json!({"name": "a", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 1}}]}})
            ),
            [
                "v[0].projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 1: may not specify a duration less than 10 minutes"
            ]
        );
    }

    #[test]
    fn volume_names_are_unique_and_mounts_refer_to_volumes() {
        let spec = json!({"volumes": [{"name": "a", "emptyDir": {}}, {"name": "a", "emptyDir": {}}]});
        let (good, errors) = validate_volumes(&spec, &FieldPath::root("v"));
        assert_eq!(messages(errors), [r#"v[1].name: Duplicate value: "a""#]);
        let validation_errors =
            |container: Value| messages(validate_volume_mounts(&container, &good, &FieldPath::root("c")));
        assert!(validation_errors(json!({"volumeMounts": [{"name": "a", "mountPath": "/a"}]})).is_empty());
        assert_eq!(
            validation_errors(
                json!({"volumeMounts": [{"name": "b", "mountPath": "/a"}, {"name": "a", "mountPath": "/a", "subPath": "/x"}, {"name": "a"}]})
            ),
            [
                r#"c.volumeMounts[0].name: Not found: "b""#,
                r#"c.volumeMounts[1].mountPath: Invalid value: "/a": must be unique"#,
                r#"c.volumeMounts.subPath: Invalid value: "/x": must be a relative path"#,
                "c.volumeMounts[2].mountPath: Required value",
            ]
        );
        assert_eq!(
            validation_errors(
                json!({"volumeMounts": [{"name": "a", "mountPath": "/a", "mountPropagation": "Bidirectional"}]})
            ),
            [
                "c.volumeMounts.mountPropagation: Forbidden: Bidirectional mount propagation is available only to privileged containers"
            ]
        );
        assert_eq!(
            validation_errors(json!({"volumeDevices": [{"name": "a", "devicePath": "/d"}]})),
            [
                r#"c.volumeDevices[0].name: Invalid value: "a": can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"#
            ]
        );
    }
}
