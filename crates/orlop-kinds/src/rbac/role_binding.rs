//! RoleBinding, and the strategy it shares with ClusterRoleBinding.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names::{self, NameRule},
};
use serde_json::Value;

use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{list, text},
    defaulting,
    printer::{ColumnDefinition, PrinterColumns, age, name},
    strategy::Strategy,
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    name_rule: NameRule::PathSegment,
    flags: StrategyFlags { allow_create_on_update: true, ..StrategyFlags::BUILTIN },
    columns: &COLUMNS,
    strategy: &RoleBindingStrategy { namespaced: true },
    ..BuiltinKind::new("rbac.authorization.k8s.io", "rolebindings")
};

const GROUP: &str = "rbac.authorization.k8s.io";

pub(crate) static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::text("Role"),
        ColumnDefinition::AGE,
        ColumnDefinition::wide("Users"),
        ColumnDefinition::wide("Groups"),
        ColumnDefinition::wide("ServiceAccounts"),
    ],
    cells: |object, now| {
        let role = format!("{}/{}", text(object, "/roleRef/kind"), text(object, "/roleRef/name"));
        let subjects = |kind: &str| -> Value {
            let of_kind = list(object, "/subjects").iter().filter(|subject| text(subject, "/kind") == kind);
            let names = of_kind.map(|subject| match kind {
                "ServiceAccount" => format!("{}/{}", text(subject, "/namespace"), text(subject, "/name")),
                _ => text(subject, "/name").to_owned(),
            });
            names.collect::<Vec<_>>().join(", ").into()
        };
        let (users, groups, accounts) = (subjects("User"), subjects("Group"), subjects("ServiceAccount"));
        vec![name(object), role.into(), age(object, now), users, groups, accounts]
    },
};

/// Strategy of RoleBinding and ClusterRoleBinding.
pub(crate) struct RoleBindingStrategy {
    pub(crate) namespaced: bool,
}

impl Strategy for RoleBindingStrategy {
    fn set_defaults(&self, object: &mut Value) {
        if let Some(role) = defaulting::object_mut(object, "roleRef") {
            defaulting::set_if_zero(role, "apiGroup", GROUP);
        }
        for subject in defaulting::items_mut(object, "subjects") {
            if matches!(text(subject, "/kind"), "User" | "Group") {
                defaulting::set_if_zero(subject, "apiGroup", GROUP);
            }
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let path = FieldPath::root("roleRef");
        let mut errors = Vec::new();
        let group = text(object, "/roleRef/apiGroup");
        if group != GROUP {
            errors.push(FieldError::not_supported(&path.child("apiGroup"), group, &[GROUP]));
        }
        let kinds: &[&str] = if self.namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
        let kind = text(object, "/roleRef/kind");
        if !kinds.contains(&kind) {
            errors.push(FieldError::not_supported(&path.child("kind"), kind, kinds));
        }
        match text(object, "/roleRef/name") {
            "" => errors.push(FieldError::required(&path.child("name"), "")),
            role => errors.extend(validation::invalid_for_each(
                &path.child("name"),
                role,
                names::path_segment(role),
            )),
        }
        errors.extend(validation::validate_items(object, "subjects", &FieldPath::nil(), |item, path| {
            validate_subject(item, self.namespaced, path)
        }));
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        if object.get("roleRef") == old.get("roleRef") {
            return Vec::new();
        }
        let role = object.get("roleRef").cloned().unwrap_or_default();
        vec![FieldError::invalid(&FieldPath::root("roleRef"), role, "cannot change roleRef")]
    }
}

fn validate_subject(subject: &Value, namespaced: bool, path: &FieldPath) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> =
        validation::require_text(subject, "name", path).map(FieldError::declaratively).into_iter().collect();
    let (name, group) = (text(subject, "/name"), text(subject, "/apiGroup"));
    match text(subject, "/kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                errors.extend(validation::validate_dns_subdomain(name, &path.child("name")));
            }
            if !group.is_empty() {
                errors.push(FieldError::not_supported(&path.child("apiGroup"), group, &[""]));
            }
            if !namespaced {
                errors.extend(validation::require_text(subject, "namespace", path));
            }
        }
        "User" | "Group" if group == GROUP => {}
        "User" | "Group" => errors.push(FieldError::not_supported(&path.child("apiGroup"), group, &[GROUP])),
        other => {
            let kinds = ["ServiceAccount", "User", "Group"];
            errors.push(FieldError::not_supported(&path.child("kind"), other, &kinds));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{printer::tests::row, validation::tests::messages};

    #[test]
    fn subject_groups_default_and_role_ref_is_immutable() {
        let binding = RoleBindingStrategy { namespaced: true };
        let mut object = json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [
            {"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "a", "namespace": "n"}]});
        binding.set_defaults(&mut object);
        assert_eq!(object["roleRef"]["apiGroup"], GROUP);
        assert_eq!(
            object["subjects"],
            json!([{"kind": "User", "name": "u", "apiGroup": GROUP}, {"kind": "ServiceAccount", "name": "a", "namespace": "n"}])
        );
        assert!(binding.validate(&object).is_empty());
        let mut changed = object.clone();
        changed["roleRef"]["name"] = "s".into();
        assert_eq!(
            messages(binding.validate_update(&changed, &object)),
            [
                r#"roleRef: Invalid value: {"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"s"}: cannot change roleRef"#
            ]
        );
        assert_eq!(row(&COLUMNS, &object)[1..], ["Role/r", "<unknown>", "u", "", "n/a"]);
    }

    #[test]
    fn unsupported_subjects_are_rejected() {
        let binding = RoleBindingStrategy { namespaced: false };
        let object = json!({"roleRef": {"kind": "Role", "apiGroup": "x"}, "subjects": [
            {"kind": "ServiceAccount", "name": "a"}, {"kind": "Robot"}, {"kind": "Group", "name": "g", "apiGroup": "x"}]});
        assert_eq!(
            messages(binding.validate(&object)),
            [
                r#"roleRef.apiGroup: Unsupported value: "x": supported values: "rbac.authorization.k8s.io""#,
                r#"roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole""#,
                "roleRef.name: Required value",
                "subjects[0].namespace: Required value",
                "subjects[1].name: Required value",
                r#"subjects[1].kind: Unsupported value: "Robot": supported values: "ServiceAccount", "User", "Group""#,
                r#"subjects[2].apiGroup: Unsupported value: "x": supported values: "rbac.authorization.k8s.io""#,
            ]
        );
    }
}
