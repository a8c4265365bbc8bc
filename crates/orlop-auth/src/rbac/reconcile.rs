//! Reconciliation of bootstrap objects: what is missing is added, what somebody added stays, and an object whose
//! autoupdate annotation is `false` is left alone.

use orlop_api::object_meta;
use serde_json::{Map, Value};

use super::{PolicyRule, bootstrap::AUTO_UPDATE, rule::uncovered};

/// The write that an object needs.
#[derive(Clone, Debug, PartialEq)]
pub enum Reconciled {
    /// None: it is complete or protected.
    Unchanged,
    /// It is updated to this.
    Update(Value),
    /// It is deleted and created anew, because its roleRef differs, which is immutable.
    Recreate,
}

/// Compares an existing role or binding with the expected one.
pub fn reconcile(existing: &Value, expected: &Value) -> Reconciled {
    if existing.pointer("/metadata/annotations").and_then(|annotations| annotations.get(AUTO_UPDATE))
        == Some(&Value::from("false"))
    {
        return Reconciled::Unchanged;
    }
    if existing.get("roleRef") != expected.get("roleRef") {
        return Reconciled::Recreate;
    }
    let mut object = existing.clone();
    for field in ["annotations", "labels"] {
        merge(&mut object, expected, field);
    }
    if expected.get("roleRef").is_some() {
        add_subjects(&mut object, expected);
    } else {
        add_rules(&mut object, expected);
        add_selectors(&mut object, expected);
    }
    if object == *existing { Reconciled::Unchanged } else { Reconciled::Update(object) }
}

/// Adds missing entries of a map of the metadata. Existing values win.
fn merge(object: &mut Value, expected: &Value, field: &str) {
    let Some(wanted) = object_meta::of(expected).get(field).and_then(Value::as_object) else {
        return;
    };
    let present = &mut object["metadata"][field];
    if !present.is_object() {
        *present = Map::new().into();
    }
    for (key, value) in wanted {
        if present.get(key).is_none() {
            present[key] = value.clone();
        }
    }
}

fn add_rules(object: &mut Value, expected: &Value) {
    // Breaking rules down is costly, and a role is nearly always as it was created.
    if object.get("rules") == expected.get("rules") {
        return;
    }
    let wanted = PolicyRule::all_of(expected);
    let missing = uncovered(&PolicyRule::all_of(object), &wanted).unwrap_or(wanted);
    let missing = missing.into_iter().filter_map(|rule| serde_json::to_value(rule).ok());
    append(object, "rules", missing.collect());
}

fn add_subjects(object: &mut Value, expected: &Value) {
    let present = object.get("subjects").and_then(Value::as_array).cloned().unwrap_or_default();
    let wanted = expected.get("subjects").and_then(Value::as_array).into_iter().flatten();
    let has = |subject: &&Value| present.iter().any(|other| is_same_subject(other, subject));
    append(object, "subjects", wanted.filter(|subject| !has(subject)).cloned().collect());
}

fn is_same_subject(one: &Value, other: &Value) -> bool {
    let text = |subject: &Value, field: &str| {
        subject.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    ["kind", "apiGroup", "namespace", "name"].iter().all(|field| text(one, field) == text(other, field))
}

/// Adds missing selectors of an aggregation, and removes an aggregation that is not expected.
fn add_selectors(object: &mut Value, expected: &Value) {
    let Some(wanted) = expected.pointer("/aggregationRule/clusterRoleSelectors").and_then(Value::as_array)
    else {
        if let Some(object) = object.as_object_mut() {
            object.remove("aggregationRule");
        }
        return;
    };
    let present = object.pointer("/aggregationRule/clusterRoleSelectors").and_then(Value::as_array);
    let present = present.cloned().unwrap_or_default();
    let missing: Vec<Value> = wanted.iter().filter(|selector| !present.contains(selector)).cloned().collect();
    if !missing.is_empty() {
        object["aggregationRule"]["clusterRoleSelectors"] = present.into_iter().chain(missing).collect();
    }
}

fn append(object: &mut Value, field: &str, more: Vec<Value>) {
    if more.is_empty() {
        return;
    }
    match object.get_mut(field).and_then(Value::as_array_mut) {
        Some(present) => present.extend(more),
        None => object[field] = more.into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rbac::bootstrap;

    fn policy(name: &str, kind: &str) -> Value {
        let objects = bootstrap::roles().into_iter().chain(bootstrap::bindings());
        let mut found = objects.filter(|object| object["metadata"]["name"] == name && object["kind"] == kind);
        found.next().unwrap_or_default()
    }

    #[test]
    fn missing_rules_labels_and_subjects_are_added() {
        let expected = policy("system:basic-user", "ClusterRole");
        assert_eq!(reconcile(&expected, &expected), Reconciled::Unchanged);
        let mut existing = expected.clone();
        existing["metadata"]["labels"] = json!({"mine": "yes"});
        existing["rules"] = json!([{"verbs": ["get"], "apiGroups": ["x"], "resources": ["y"]}]);
        let Reconciled::Update(updated) = reconcile(&existing, &expected) else {
            panic!("a role without its rules is updated")
        };
        assert_eq!(updated["metadata"]["labels"]["mine"], "yes");
        assert_eq!(updated["metadata"]["labels"]["kubernetes.io/bootstrapping"], "rbac-defaults");
        // Missing rules are added one verb and resource each.
        assert_eq!(updated["rules"].as_array().map(Vec::len), Some(4));
        assert_eq!(reconcile(&updated, &expected), Reconciled::Unchanged);

        let expected = policy("system:public-info-viewer", "ClusterRoleBinding");
        let mut existing = expected.clone();
        existing["subjects"] =
            json!([{"kind": "User", "name": "x", "apiGroup": "rbac.authorization.k8s.io"}]);
        let Reconciled::Update(updated) = reconcile(&existing, &expected) else {
            panic!("a binding without its subjects is updated")
        };
        assert_eq!(updated["subjects"].as_array().map(Vec::len), Some(3));
    }

    #[test]
    fn protected_objects_are_left_alone() {
        let expected = policy("system:discovery", "ClusterRoleBinding");
        let mut existing = expected.clone();
        existing["subjects"] = json!([]);
        existing["metadata"]["annotations"][AUTO_UPDATE] = "false".into();
        assert_eq!(reconcile(&existing, &expected), Reconciled::Unchanged);
    }

    #[test]
    fn binding_of_another_role_is_created_anew() {
        let expected = policy("system:discovery", "ClusterRoleBinding");
        let mut existing = expected.clone();
        existing["roleRef"]["name"] = "other".into();
        assert_eq!(reconcile(&existing, &expected), Reconciled::Recreate);
    }

    #[test]
    fn aggregated_roles_keep_their_gathered_rules() {
        let expected = policy("view", "ClusterRole");
        let mut existing = expected.clone();
        existing["rules"] = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]);
        assert_eq!(reconcile(&existing, &expected), Reconciled::Unchanged);
        existing["aggregationRule"] = json!({"clusterRoleSelectors": []});
        assert!(matches!(reconcile(&existing, &expected), Reconciled::Update(_)));
    }
}
