//! Node: a machine that runs pods.

use std::collections::BTreeSet;

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names,
};
use serde_json::{Value, json};

use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{condition, flag, list, map, mark_repeated, text, text_or, texts},
    defaulting,
    printer::{ColumnDefinition, PrinterColumns, age, name},
    quantities,
    strategy::Strategy,
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { keeps_status_on_create: true, ..StrategyFlags::BUILTIN },
    selectable_fields: &["spec.unschedulable"],
    columns: &COLUMNS,
    strategy: &Node,
    ..BuiltinKind::new("", "nodes")
};

const ROLE_PREFIX: &str = "node-role.kubernetes.io/";
const ROLE: &str = "kubernetes.io/role";

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::text("Status"),
        ColumnDefinition::text("Roles"),
        ColumnDefinition::AGE,
        ColumnDefinition::text("Version"),
        ColumnDefinition::wide("Internal-IP"),
        ColumnDefinition::wide("External-IP"),
        ColumnDefinition::wide("OS-Image"),
        ColumnDefinition::wide("Kernel-Version"),
        ColumnDefinition::wide("Container-Runtime"),
    ],
    cells: |object, now| {
        let info =
            |field: &str| text_or(object, &format!("/status/nodeInfo/{field}"), "<unknown>").to_owned();
        let mut kernel = info("kernelVersion");
        let architecture = text(object, "/status/nodeInfo/architecture");
        if !architecture.is_empty() {
            kernel.push_str(&format!(" ({architecture})"));
        }
        vec![
            name(object),
            status_text(object).into(),
            role_names(object).into(),
            age(object, now),
            text(object, "/status/nodeInfo/kubeletVersion").into(),
            address(object, "InternalIP").into(),
            address(object, "ExternalIP").into(),
            info("osImage").into(),
            kernel.into(),
            info("containerRuntimeVersion").into(),
        ]
    },
};

fn status_text(node: &Value) -> String {
    let ready = match condition(node, "Ready").map(|ready| text(ready, "/status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    if flag(node, "/spec/unschedulable") { format!("{ready},SchedulingDisabled") } else { ready.to_owned() }
}

fn role_names(node: &Value) -> String {
    let role = |(key, value): (&String, &Value)| match key.strip_prefix(ROLE_PREFIX) {
        Some(role) => Some(role.to_owned()),
        None if key == ROLE => value.as_str().map(str::to_owned),
        None => None,
    };
    let roles: BTreeSet<String> =
        map(node, "/metadata/labels").iter().filter_map(role).filter(|role| !role.is_empty()).collect();
    if roles.is_empty() { "<none>".to_owned() } else { roles.into_iter().collect::<Vec<_>>().join(",") }
}

fn address<'a>(node: &'a Value, kind: &str) -> &'a str {
    let found = list(node, "/status/addresses").iter().find(|address| text(address, "/type") == kind);
    found.map_or("<none>", |address| text(address, "/address"))
}

pub(crate) struct Node;

impl Strategy for Node {
    fn set_defaults(&self, object: &mut Value) {
        // podCIDR is the first of podCIDRs.
        let (one, many) =
            (text(object, "/spec/podCIDR").to_owned(), list(object, "/spec/podCIDRs").first().cloned());
        if let Some(spec) = defaulting::object_mut(object, "spec") {
            match many {
                None if !one.is_empty() => spec["podCIDRs"] = json!([one]),
                Some(first) => defaulting::set_if_absent(spec, "podCIDR", first),
                None => {}
            }
        }
        let capacity = map(object, "/status/capacity").clone();
        if let Some(status) = defaulting::object_mut(object, "status").filter(|_| !capacity.is_empty()) {
            defaulting::set_if_absent(status, "allocatable", capacity);
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        // Kubernetes reports taints under metadata.
        let mut errors =
            validate_taints(list(object, "/spec/taints"), &FieldPath::root("metadata").child("taints"));
        for field in ["capacity", "allocatable"] {
            for (key, amount) in map(object, &format!("/status/{field}")) {
                let path = FieldPath::root("status").child(field).child(key);
                errors.extend(quantities::validate_non_negative(amount, &path));
            }
        }
        for (index, range) in texts(object, "/spec/podCIDRs").into_iter().enumerate() {
            errors.extend(validation::validate_cidr(
                range,
                &FieldPath::root("spec").child("podCIDRs").index(index),
            ));
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let spec = FieldPath::root("spec");
        let mut errors = Vec::new();
        let (new_ranges, old_ranges) = (texts(object, "/spec/podCIDRs"), texts(old, "/spec/podCIDRs"));
        if !old_ranges.is_empty() && new_ranges != old_ranges {
            let detail = "node updates may not change podCIDR except from \"\" to valid";
            errors.push(FieldError::forbidden(&spec.child("podCIDRs"), detail));
        }
        let (new, old) = (text(object, "/spec/providerID"), text(old, "/spec/providerID"));
        if !old.is_empty() && new != old {
            let detail = if new.is_empty() {
                "field cannot be cleared once set"
            } else {
                "field cannot be modified once set"
            };
            errors.push(FieldError::invalid(&spec.child("providerID"), Value::Null, detail));
        }
        errors
    }

    fn field_value(&self, object: &Value, path: &str) -> String {
        match path {
            "spec.unschedulable" => flag(object, "/spec/unschedulable").to_string(),
            _ => orlop_api::fields::field_text(object, path),
        }
    }
}

fn validate_taints(taints: &[Value], path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let repeated = mark_repeated(taints, |taint| (text(taint, "/key"), text(taint, "/effect")));
    for ((index, taint), repeated) in taints.iter().enumerate().zip(repeated) {
        let path = path.index(index);
        let (key, value) = (text(taint, "/key"), text(taint, "/value"));
        errors.extend(validation::invalid_for_each(&path.child("key"), key, names::qualified_name(key)));
        errors.extend(validation::invalid_for_each(&path.child("value"), value, names::label_value(value)));
        let effects = &["NoSchedule", "PreferNoSchedule", "NoExecute"];
        errors.extend(validation::require_supported(taint, "effect", &path, effects));
        if repeated {
            let mut error = FieldError::duplicate(&path, taint.clone());
            error.detail = "taints must be unique by key and effect pair".to_owned();
            errors.push(error);
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
    fn row_shows_status_roles_and_addresses() {
        let node = json!({"metadata": {"name": "n", "labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "a"}},
            "spec": {"unschedulable": true},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                "nodeInfo": {"kubeletVersion": "v1", "kernelVersion": "6.1", "architecture": "amd64"}}});
        assert_eq!(
            row(&COLUMNS, &node),
            [
                "n",
                "Ready,SchedulingDisabled",
                "a,worker",
                "<unknown>",
                "v1",
                "10.0.0.1",
                "<none>",
                "<unknown>",
                "6.1 (amd64)",
                "<unknown>"
            ]
        );
        assert_eq!(row(&COLUMNS, &json!({}))[1..3], ["Unknown", "<none>"]);
        assert_eq!(
            status_text(&json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}})),
            "NotReady"
        );
        assert_eq!(Node.field_value(&json!({}), "spec.unschedulable"), "false");
    }

    #[test]
    fn taints_are_unique_and_pod_cidrs_immutable() {
        let taint = json!({"key": "a", "effect": "NoSchedule"});
        assert_eq!(
            messages(
                Node.validate(&json!({"spec": {"taints": [taint, taint, {"key": "b", "effect": "X"}]}}))
            ),
            [
                r#"metadata.taints[1]: Duplicate value: {"effect":"NoSchedule","key":"a"}: taints must be unique by key and effect pair"#,
                r#"metadata.taints[2].effect: Unsupported value: "X": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute""#,
            ]
        );
        let old = json!({"spec": {"podCIDRs": ["10.0.0.0/24"], "providerID": "x"}});
        assert_eq!(
            messages(Node.validate_update(&json!({"spec": {}}), &old)),
            [
                "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid",
                "spec.providerID: Invalid value: null: field cannot be cleared once set",
            ]
        );
        let mut node = json!({"status": {"capacity": {"cpu": "4"}}});
        Node.set_defaults(&mut node);
        assert_eq!(node["status"]["allocatable"], json!({"cpu": "4"}));
    }
}
