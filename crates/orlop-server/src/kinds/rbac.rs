//! Roles and bindings: what may be done, and by whom.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    labels, names,
};
use serde_json::Value;

use super::{
    check,
    columns::{Heading, Table, name},
    fill,
    read::{list, present, text},
};
use crate::{
    registry::Hooks,
    table::{Columns, age},
};

const GROUP: &str = "rbac.authorization.k8s.io";

static BINDINGS: Table = Table {
    headings: &[
        Heading::NAME,
        Heading::text("Role"),
        Heading::AGE,
        Heading::wide("Users"),
        Heading::wide("Groups"),
        Heading::wide("ServiceAccounts"),
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

/// Roles, of a namespace or of the cluster. Their table is name and creation time.
pub(super) struct Role {
    pub(super) namespaced: bool,
}

impl Hooks for Role {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors =
            check::every(object, "rules", &FieldPath::nil(), |item, path| rule(item, self.namespaced, path));
        if let Some(aggregation) = present(object, "/aggregationRule").filter(|_| !self.namespaced) {
            let path = FieldPath::root("aggregationRule");
            if list(aggregation, "/clusterRoleSelectors").is_empty() {
                let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
                errors.push(FieldError::required(&path.child("clusterRoleSelectors"), detail));
            }
            errors.extend(check::every(
                aggregation,
                "clusterRoleSelectors",
                &path,
                labels::validate_label_selector,
            ));
        }
        errors
    }
}

fn rule(rule: &Value, namespaced: bool, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let given = |field: &str| list(rule, field);
    if given("/verbs").is_empty() {
        errors.push(FieldError::required(&path.child("verbs"), "verbs must contain at least one value"));
    }
    let urls = given("/nonResourceURLs");
    if !urls.is_empty() {
        let path = path.child("nonResourceURLs");
        if namespaced {
            let detail = "namespaced rules cannot apply to non-resource URLs";
            errors.push(FieldError::invalid(&path, urls.to_vec(), detail));
        }
        if ["/apiGroups", "/resources", "/resourceNames"].iter().any(|field| !given(field).is_empty()) {
            let detail = "rules cannot apply to both regular resources and non-resource URLs";
            errors.push(FieldError::invalid(&path, urls.to_vec(), detail));
        }
        return errors;
    }
    if given("/apiGroups").is_empty() {
        let detail = "resource rules must supply at least one api group";
        errors.push(FieldError::required(&path.child("apiGroups"), detail));
    }
    if given("/resources").is_empty() {
        let detail = "resource rules must supply at least one resource";
        errors.push(FieldError::required(&path.child("resources"), detail));
    }
    errors
}

/// Bindings of a role to subjects, in a namespace or everywhere.
pub(super) struct Binding {
    pub(super) namespaced: bool,
}

impl Hooks for Binding {
    fn default(&self, object: &mut Value) {
        if let Some(role) = fill::child(object, "roleRef") {
            fill::empty(role, "apiGroup", GROUP);
        }
        for subject in fill::items(object, "subjects") {
            if matches!(text(subject, "/kind"), "User" | "Group") {
                fill::empty(subject, "apiGroup", GROUP);
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
            role => errors.extend(check::each(&path.child("name"), role, names::path_segment(role))),
        }
        errors.extend(check::every(object, "subjects", &FieldPath::nil(), |item, path| {
            subject(item, self.namespaced, path)
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

    fn columns(&self) -> Option<&dyn Columns> {
        Some(&BINDINGS)
    }
}

fn subject(subject: &Value, namespaced: bool, path: &FieldPath) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> = check::required(subject, "name", path).into_iter().collect();
    let (name, group) = (text(subject, "/name"), text(subject, "/apiGroup"));
    match text(subject, "/kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                errors.extend(check::dns_subdomain(name, &path.child("name")));
            }
            if !group.is_empty() {
                errors.push(FieldError::not_supported(&path.child("apiGroup"), group, &[""]));
            }
            if !namespaced {
                errors.extend(check::required(subject, "namespace", path));
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

    use super::{super::check::tests::told, super::columns::tests::row, *};

    #[test]
    fn rules_name_resources_or_urls() {
        let refused =
            |namespaced: bool, rule: Value| told(Role { namespaced }.validate(&json!({"rules": [rule]})));
        let good = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
        assert!(refused(true, good).is_empty());
        assert_eq!(
            refused(true, json!({})),
            [
                "rules[0].verbs: Required value: verbs must contain at least one value",
                "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
                "rules[0].resources: Required value: resource rules must supply at least one resource",
            ]
        );
        let urls = json!({"verbs": ["get"], "nonResourceURLs": ["/a"], "resources": ["x"]});
        assert_eq!(
            refused(true, urls.clone()),
            [
                r#"rules[0].nonResourceURLs: Invalid value: ["/a"]: namespaced rules cannot apply to non-resource URLs"#,
                r#"rules[0].nonResourceURLs: Invalid value: ["/a"]: rules cannot apply to both regular resources and non-resource URLs"#,
            ]
        );
        assert_eq!(refused(false, urls).len(), 1);
        let aggregating = json!({"aggregationRule": {}});
        assert_eq!(
            told(Role { namespaced: false }.validate(&aggregating)),
            [
                "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil"
            ]
        );
    }

    #[test]
    fn bindings_default_groups_and_keep_their_role() {
        let binding = Binding { namespaced: true };
        let mut object = json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [
            {"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "a", "namespace": "n"}]});
        binding.default(&mut object);
        assert_eq!(object["roleRef"]["apiGroup"], GROUP);
        assert_eq!(
            object["subjects"],
            json!([{"kind": "User", "name": "u", "apiGroup": GROUP}, {"kind": "ServiceAccount", "name": "a", "namespace": "n"}])
        );
        assert!(binding.validate(&object).is_empty());
        let mut changed = object.clone();
        changed["roleRef"]["name"] = "s".into();
        assert_eq!(
            told(binding.validate_update(&changed, &object)),
            [
                r#"roleRef: Invalid value: {"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"s"}: cannot change roleRef"#
            ]
        );
        assert_eq!(row(&BINDINGS, &object)[1..], ["Role/r", "<unknown>", "u", "", "n/a"]);
    }

    #[test]
    fn bindings_refuse_what_is_no_subject() {
        let binding = Binding { namespaced: false };
        let object = json!({"roleRef": {"kind": "Role", "apiGroup": "x"}, "subjects": [
            {"kind": "ServiceAccount", "name": "a"}, {"kind": "Robot"}, {"kind": "Group", "name": "g", "apiGroup": "x"}]});
        assert_eq!(
            told(binding.validate(&object)),
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
