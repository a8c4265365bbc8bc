//! Security contexts: whom a pod and its containers run as.

use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::Value;

use super::{
    super::{
        check,
        read::{flag, list, present, text, texts},
    },
    volumes::below,
};

const IDENTITY_MAX: i64 = i32::MAX as i64;

/// Checks a pod's context.
pub(super) fn pod(context: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        errors.extend(identity(context.get(field), &path.child(field)));
    }
    for (index, group) in list(context, "/supplementalGroups").iter().enumerate() {
        errors.extend(identity(Some(group), &path.child("supplementalGroups").index(index)));
    }
    errors.extend(check::supported(context, "fsGroupChangePolicy", path, &["Always", "OnRootMismatch"]));
    errors.extend(seccomp(context, path));
    errors.extend(check::supported(context, "supplementalGroupsPolicy", path, &["Merge", "Strict"]));
    errors
}

/// Checks a container's context.
pub(super) fn container(context: &Value, host_users: bool, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["runAsUser", "runAsGroup"] {
        errors.extend(identity(context.get(field), &path.child(field)));
    }
    errors.extend(check::supported(context, "procMount", path, &["Default", "Unmasked"]));
    if host_users && text(context, "/procMount") == "Unmasked" {
        let detail = "`hostUsers` must be false to use `Unmasked`";
        errors.push(FieldError::invalid(&path.child("procMount"), "Unmasked", detail));
    }
    errors.extend(seccomp(context, path));
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

/// A user or group.
fn identity(id: Option<&Value>, path: &FieldPath) -> Option<FieldError> {
    let id = id?.as_i64()?;
    let detail = check::between(0, IDENTITY_MAX);
    (!(0..=IDENTITY_MAX).contains(&id)).then(|| FieldError::invalid(path, id, detail))
}

fn seccomp(context: &Value, path: &FieldPath) -> Vec<FieldError> {
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
        ("Localhost", Some(given)) => errors.extend(below(given, &local)),
        (_, Some(_)) => {
            let detail = "can only be set when seccomp type is Localhost";
            errors.push(FieldError::invalid(&local, profile.clone(), detail));
        }
        (_, None) => {}
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::super::check::tests::told, *};

    #[test]
    fn identities_profiles_and_privileges_are_checked() {
        let path = FieldPath::root("s");
        assert!(
            pod(&json!({"runAsUser": 0, "seccompProfile": {"type": "RuntimeDefault"}}), &path).is_empty()
        );
        assert_eq!(
            told(pod(&json!({"runAsUser": -1, "fsGroupChangePolicy": "x", "seccompProfile": {}}), &path)),
            [
                "s.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
                r#"s.fsGroupChangePolicy: Unsupported value: "x": supported values: "Always", "OnRootMismatch""#,
                "s.seccompProfile.type: Required value: type is required when seccompProfile is set",
            ]
        );
        assert_eq!(
            told(container(&json!({"allowPrivilegeEscalation": false, "privileged": true}), true, &path)),
            [
                r#"s: Invalid value: {"allowPrivilegeEscalation":false,"privileged":true}: cannot set `allowPrivilegeEscalation` to false and `privileged` to true"#
            ]
        );
        assert_eq!(
            told(container(&json!({"seccompProfile": {"type": "Localhost"}}), true, &path)),
            ["s.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost"]
        );
    }
}
