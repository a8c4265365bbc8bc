//! Validation of security contexts.

use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::Value;

use super::{volume_files::validate_local_descending_path, windows::validate_windows_options};
use crate::{
    accessors::{flag, list, mark_repeated, present, text, texts},
    validation,
};

const ID_MAX: i64 = i32::MAX as i64;

/// Validates a pod's security context. Host namespaces in `spec` restrict sysctls.
pub(crate) fn validate_pod_security_context(
    context: &Value,
    spec: &Value,
    path: &FieldPath,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        errors.extend(validate_id(context.get(field), &path.child(field)));
    }
    for (index, group) in list(context, "/supplementalGroups").iter().enumerate() {
        errors.extend(validate_id(Some(group), &path.child("supplementalGroups").index(index)));
    }
    errors.extend(validate_sysctls(context, spec, &path.child("sysctls")));
    errors.extend(validation::validate_supported(
        context,
        "fsGroupChangePolicy",
        path,
        &["Always", "OnRootMismatch"],
    ));
    errors.extend(validate_windows_options(context, path));
    errors.extend(validate_seccomp(context, path));
    errors.extend(validate_app_armor(context, path));
    errors.extend(validation::validate_supported(
        context,
        "supplementalGroupsPolicy",
        path,
        &["Merge", "Strict"],
    ));
    errors
}

/// Validates a container's security context.
pub(crate) fn validate_security_context(
    context: &Value,
    host_users: bool,
    path: &FieldPath,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["runAsUser", "runAsGroup"] {
        errors.extend(validate_id(context.get(field), &path.child(field)));
    }
    errors.extend(validation::validate_supported(context, "procMount", path, &["Default", "Unmasked"]));
    if host_users && text(context, "/procMount") == "Unmasked" {
        let detail = "`hostUsers` must be false to use `Unmasked`";
        errors.push(FieldError::invalid(&path.child("procMount"), "Unmasked", detail));
    }
    errors.extend(validate_windows_options(context, path));
    errors.extend(validate_seccomp(context, path));
    errors.extend(validate_app_armor(context, path));
    if context.get("allowPrivilegeEscalation") == Some(&Value::Bool(false)) {
        if flag(context, "/privileged") {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            errors.push(FieldError::invalid(path, context.clone(), detail));
        }
        if texts(context, "/capabilities/add").contains(&"CAP_SYS_ADMIN") {
            let detail =
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errors.push(FieldError::invalid(path, context.clone(), detail));
        }
    }
    errors
}

const SYSCTL_LENGTH_MAX: usize = 253;

/// Validates sysctls: unique, and none of a namespace that the pod shares with the host.
fn validate_sysctls(context: &Value, spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let parameters = list(context, "/sysctls");
    let mut errors = Vec::new();
    let repeated = mark_repeated(parameters, |parameter| text(parameter, "/name"));
    for ((index, parameter), repeated) in parameters.iter().enumerate().zip(repeated) {
        let (name, path) = (text(parameter, "/name"), path.index(index).child("name"));
        if name.is_empty() {
            errors.push(FieldError::required(&path, ""));
        } else if !is_sysctl_name(name) {
            let detail = "must have at most 253 characters and match regex \
                          ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
            errors.push(FieldError::invalid(&path, name, detail));
        } else if repeated {
            errors.push(FieldError::duplicate(&path, name));
        }
        let shared = match sysctl_namespace(name) {
            Some("net") if flag(spec, "/hostNetwork") => "hostNetwork",
            Some("ipc") if flag(spec, "/hostIPC") => "hostIPC",
            _ => continue,
        };
        let detail = format!("may not be specified when '{shared}' is true");
        errors.push(FieldError::invalid(&path, name, detail));
    }
    errors
}

fn is_sysctl_name(name: &str) -> bool {
    let ends = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let segment = |part: &str| {
        let bytes = part.as_bytes();
        let edges =
            bytes.first().is_some_and(|byte| ends(*byte)) && bytes.last().is_some_and(|byte| ends(*byte));
        edges && bytes.iter().all(|byte| ends(*byte) || matches!(byte, b'-' | b'_'))
    };
    name.len() <= SYSCTL_LENGTH_MAX && name.split(['.', '/']).all(segment)
}

/// Returns the kernel namespace of a sysctl, if it is namespaced.
fn sysctl_namespace(name: &str) -> Option<&'static str> {
    // The first of `.` and `/` is the separator; the other is part of a name.
    let swapped = |letter: char| match letter {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    let name: String = match name.find(['.', '/']) {
        Some(at) if name.get(at..).is_some_and(|rest| rest.starts_with('/')) => {
            name.chars().map(swapped).collect()
        }
        _ => name.to_owned(),
    };
    let ipc = ["kernel.shm", "kernel.msg", "fs.mqueue."];
    if name == "kernel.sem" || ipc.iter().any(|prefix| name.starts_with(prefix)) {
        return Some("ipc");
    }
    name.starts_with("net.").then_some("net")
}

/// Validates a user or group ID.
fn validate_id(id: Option<&Value>, path: &FieldPath) -> Option<FieldError> {
    let id = id?.as_i64()?;
    let detail = validation::inclusive_range_message(0, ID_MAX);
    (!(0..=ID_MAX).contains(&id)).then(|| FieldError::invalid(path, id, detail))
}

fn validate_seccomp(context: &Value, path: &FieldPath) -> Vec<FieldError> {
    let Some(profile) = present(context, "/seccompProfile") else { return Vec::new() };
    let path = path.child("seccompProfile");
    let types = ["Localhost", "RuntimeDefault", "Unconfined"];
    let kind = text(profile, "/type");
    let mut errors = Vec::new();
    if kind.is_empty() {
        errors.push(FieldError::required(&path.child("type"), "type is required when seccompProfile is set"));
    } else if !types.contains(&kind) {
        errors.push(FieldError::not_supported(&path.child("type"), kind, &types));
    }
    let local = path.child("localhostProfile");
    match (kind, present(profile, "/localhostProfile").and_then(Value::as_str)) {
        ("Localhost", None) => {
            errors.push(FieldError::required(&local, "must be set when seccomp type is Localhost"));
        }
        ("Localhost", Some(given)) => errors.extend(validate_local_descending_path(given, &local)),
        (_, Some(_)) => {
            let detail = "can only be set when seccomp type is Localhost";
            errors.push(FieldError::invalid(&local, profile.clone(), detail));
        }
        (_, None) => {}
    }
    errors
}

fn validate_app_armor(context: &Value, path: &FieldPath) -> Vec<FieldError> {
    let Some(profile) = present(context, "/appArmorProfile") else { return Vec::new() };
    let path = path.child("appArmorProfile");
    let (types, kind) = (["Localhost", "RuntimeDefault", "Unconfined"], text(profile, "/type"));
    let mut errors = Vec::new();
    if kind.is_empty() {
        errors
            .push(FieldError::required(&path.child("type"), "type is required when appArmorProfile is set"));
    } else if !types.contains(&kind) {
        errors.push(FieldError::not_supported(&path.child("type"), kind, &types));
    }
    let local = path.child("localhostProfile");
    match (kind, present(profile, "/localhostProfile").and_then(Value::as_str)) {
        ("Localhost", None) => {
            errors.push(FieldError::required(&local, "must be set when AppArmor type is Localhost"));
        }
        ("Localhost", Some(given)) if given.trim().is_empty() => {
            errors.push(FieldError::required(&local, "must be set when AppArmor type is Localhost"));
        }
        ("Localhost", Some(_)) | (_, None) => {}
        (_, Some(given)) => {
            let detail = "can only be set when AppArmor type is Localhost";
            errors.push(FieldError::invalid(&local, given, detail));
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
    fn sysctls_are_unique_and_not_of_host_namespaces() {
        let path = FieldPath::root("s");
        let validation_errors = |names: &[&str], spec: Value| {
            let sysctls: Vec<Value> = names.iter().map(|name| json!({"name": name, "value": "1"})).collect();
            messages(validate_pod_security_context(&json!({"sysctls": sysctls}), &spec, &path))
        };
        assert!(
            validation_errors(&["kernel.shm_rmid_forced", "net.ipv4.x-y", "a/b.c"], json!({})).is_empty()
        );
        let pattern = "must have at most 253 characters and match regex \
            ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
        assert_eq!(
            validation_errors(&["X", "", "a..b", "a", "a"], json!({})),
            [
                format!("s.sysctls[0].name: Invalid value: \"X\": {pattern}"),
                "s.sysctls[1].name: Required value".to_owned(),
                format!("s.sysctls[2].name: Invalid value: \"a..b\": {pattern}"),
                "s.sysctls[4].name: Duplicate value: \"a\"".to_owned(),
            ]
        );
        assert_eq!(
            validation_errors(&["kernel/shm", "net.x-y/z"], json!({"hostIPC": true, "hostNetwork": true})),
            [
                "s.sysctls[0].name: Invalid value: \"kernel/shm\": may not be specified when 'hostIPC' is true",
                "s.sysctls[1].name: Invalid value: \"net.x-y/z\": may not be specified when 'hostNetwork' is true",
            ]
        );
    }

    #[test]
    fn invalid_ids_profiles_and_privileges_are_rejected() {
        let path = FieldPath::root("s");
        assert!(
            validate_pod_security_context(
                &json!({"runAsUser": 0, "seccompProfile": {"type": "RuntimeDefault"}}),
                &json!({}),
                &path
            )
            .is_empty()
        );
        assert_eq!(
            messages(validate_pod_security_context(
                &json!({"runAsUser": -1, "fsGroupChangePolicy": "x", "seccompProfile": {}}),
                &json!({}),
                &path
            )),
            [
                "s.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
                r#"s.fsGroupChangePolicy: Unsupported value: "x": supported values: "Always", "OnRootMismatch""#,
                "s.seccompProfile.type: Required value: type is required when seccompProfile is set",
            ]
        );
        assert_eq!(
            messages(validate_security_context(
                &json!({"allowPrivilegeEscalation": false, "privileged": true}),
                true,
                &path
            )),
            [
                r#"s: Invalid value: {"allowPrivilegeEscalation":false,"privileged":true}: cannot set `allowPrivilegeEscalation` to false and `privileged` to true"#
            ]
        );
        assert_eq!(
            messages(validate_security_context(
                &json!({"seccompProfile": {"type": "Localhost"}}),
                true,
                &path
            )),
            ["s.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost"]
        );
    }
}
