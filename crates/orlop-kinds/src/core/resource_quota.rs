//! ResourceQuota: limits on the total resources of a namespace.

use std::collections::BTreeSet;

use orlop_api::{
    field_error::{FieldError, FieldPath},
    object_meta::IMMUTABLE,
};
use serde_json::{Value, json};

use super::pod;
use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{list, map, text, texts},
    printer::{ColumnDefinition, PrinterColumns, age, name},
    quantities::canonical_text,
    strategy::Strategy,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { returns_deleted_object: true, ..StrategyFlags::BUILTIN },
    columns: &COLUMNS,
    strategy: &ResourceQuota,
    ..BuiltinKind::new("", "resourcequotas")
};

const SCOPES: &[&str] = &[
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::text("Request"),
        ColumnDefinition::text("Limit"),
        ColumnDefinition::AGE,
    ],
    cells: |object, now| {
        let used = map(object, "/status/used");
        let column = |limits: bool| -> Value {
            let of =
                map(object, "/status/hard").iter().filter(|(key, _)| key.starts_with("limits.") == limits);
            let parts = of.map(|(key, hard)| {
                format!("{key}: {}/{}", canonical_text(used.get(key)), canonical_text(Some(hard)))
            });
            parts.collect::<Vec<_>>().join(", ").into()
        };
        vec![name(object), column(false), column(true), age(object, now)]
    },
};

pub(crate) struct ResourceQuota;

impl Strategy for ResourceQuota {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for (pointer, path) in [
            ("/spec/hard", FieldPath::root("spec").child("hard")),
            ("/status/hard", FieldPath::root("status").child("hard")),
            ("/status/used", FieldPath::root("status").child("used")),
        ] {
            for (key, amount) in map(object, pointer) {
                errors.extend(pod::validate_quota_resource_name(key, &path.key(key)));
                errors.extend(pod::validate_resource_value(key, amount, &path.key(key)));
            }
        }
        errors.extend(validate_scopes(object));
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let scopes = |quota: &Value| -> BTreeSet<String> {
            texts(quota, "/spec/scopes").into_iter().map(str::to_owned).collect()
        };
        if scopes(object) == scopes(old) {
            return Vec::new();
        }
        let path = FieldPath::root("spec").child("scopes");
        vec![FieldError::invalid(&path, json!(texts(object, "/spec/scopes")), IMMUTABLE)]
    }
}

/// Resources that a quota with a scope on pods may limit.
const POD_RESOURCES: &[&str] =
    &["pods", "cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];

const CLAIM_RESOURCES: &[&str] = &["persistentvolumeclaims", "requests.storage"];

const STANDARD_RESOURCES: &[&str] = &[
    "ephemeral-storage",
    "requests.ephemeral-storage",
    "limits.ephemeral-storage",
    "resourcequotas",
    "services",
    "services.nodeports",
    "services.loadbalancers",
    "replicationcontrollers",
    "secrets",
    "configmaps",
];

const POD_SCOPES: &[&str] =
    &["Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "CrossNamespacePodAffinity"];

/// Returns true if the quota limits a resource that the scope does not support.
fn is_unsupported_in_scope(scope: &str, object: &Value) -> bool {
    let counted: &[&str] = match scope {
        "BestEffort" => &["pods"],
        "VolumeAttributesClass" => CLAIM_RESOURCES,
        _ if SCOPES.contains(&scope) => POD_RESOURCES,
        _ => return false,
    };
    let standard = |key: &&str| {
        [POD_RESOURCES, CLAIM_RESOURCES, STANDARD_RESOURCES].iter().any(|known| known.contains(key))
    };
    let mut limited = map(object, "/spec/hard").keys().map(String::as_str).filter(standard);
    limited.any(|key| !counted.contains(&key))
}

fn validate_scopes(object: &Value) -> Vec<FieldError> {
    let path = FieldPath::root("spec").child("scopes");
    let scopes = texts(object, "/spec/scopes");
    let refused = |why: &str| FieldError::invalid(&path, json!(scopes), why);
    let mut errors = Vec::new();
    for scope in &scopes {
        if !SCOPES.contains(scope) {
            errors.push(refused("unsupported scope"));
        }
        if is_unsupported_in_scope(scope, object) {
            errors.push(refused(UNSUPPORTED_SCOPE));
        }
    }
    if are_conflicting(&scopes) {
        errors.push(refused(CONFLICTING_SCOPES));
    }
    errors.extend(validate_scope_selector(object));
    errors
}

const UNSUPPORTED_SCOPE: &str = "unsupported scope applied to resource";

const CONFLICTING_SCOPES: &str = "conflicting scopes";

fn are_conflicting(scopes: &[&str]) -> bool {
    let pairs = [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];
    pairs.iter().any(|pair| pair.iter().all(|scope| scopes.contains(scope)))
}

/// Validates scopeSelector.
fn validate_scope_selector(object: &Value) -> Vec<FieldError> {
    let path = FieldPath::root("spec").child("scopeSelector").child("matchExpressions");
    let mut errors = Vec::new();
    let expressions = list(object, "/spec/scopeSelector/matchExpressions");
    for expression in expressions {
        let (scope, operator) = (text(expression, "/scopeName"), text(expression, "/operator"));
        let values = list(expression, "/values");
        if !SCOPES.contains(&scope) {
            errors.push(FieldError::invalid(&path.child("scopeName"), scope, "unsupported scope"));
        }
        if is_unsupported_in_scope(scope, object) {
            let selector = object.pointer("/spec/scopeSelector").cloned().unwrap_or_default();
            errors.push(FieldError::invalid(&path, selector, UNSUPPORTED_SCOPE));
        }
        if POD_SCOPES.contains(&scope) && operator != "Exists" {
            let detail = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                          ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, \
                          ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.push(FieldError::invalid(&path.child("operator"), operator, detail));
        }
        match operator {
            "In" | "NotIn" if values.is_empty() => {
                let detail =
                    "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                errors.push(FieldError::required(&path.child("values"), detail));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail =
                    "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                errors.push(FieldError::invalid(&path.child("values"), values.to_vec(), detail));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                let detail = "not a valid selector operator";
                errors.push(FieldError::invalid(&path.child("operator"), other, detail));
            }
        }
    }
    let scopes: Vec<&str> = expressions.iter().map(|expression| text(expression, "/scopeName")).collect();
    if are_conflicting(&scopes) {
        errors.push(FieldError::invalid(&path, json!(scopes), CONFLICTING_SCOPES));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{printer::tests::row, validation::tests::messages};

    #[test]
    fn quota_rejects_unknown_resources_and_conflicting_scopes() {
        let validation_errors = |spec: Value| messages(ResourceQuota.validate(&json!({"spec": spec})));
        assert!(
            validation_errors(
                json!({"hard": {"pods": "3", "requests.cpu": "500m", "count/deployments.apps": 2}})
            )
            .is_empty()
        );
        assert_eq!(
            validation_errors(
                json!({"hard": {"pods": "1500m", "secrets": -1}, "scopes": ["BestEffort", "NotBestEffort"]})
            ),
            [
                r#"spec.hard[pods]: Invalid value: "1500m": must be an integer"#,
                r#"spec.hard[secrets]: Invalid value: "-1": must be greater than or equal to 0"#,
                r#"spec.scopes: Invalid value: ["BestEffort","NotBestEffort"]: unsupported scope applied to resource"#,
                r#"spec.scopes: Invalid value: ["BestEffort","NotBestEffort"]: unsupported scope applied to resource"#,
                r#"spec.scopes: Invalid value: ["BestEffort","NotBestEffort"]: conflicting scopes"#,
            ]
        );
        assert_eq!(
            validation_errors(json!({"hard": {"storage": "1"}})),
            [r#"spec.hard[storage]: Invalid value: "storage": must be a standard resource for quota"#]
        );
        let old = json!({"spec": {"scopes": ["Terminating"]}});
        assert_eq!(
            messages(ResourceQuota.validate_update(&json!({}), &old)),
            ["spec.scopes: Invalid value: []: field is immutable"]
        );
        let quota = json!({"metadata": {"name": "q"}, "status": {"hard": {"pods": "3", "limits.cpu": "2"}, "used": {"pods": "1"}}});
        assert_eq!(row(&COLUMNS, &quota), ["q", "pods: 1/3", "limits.cpu: 0/2", "<unknown>"]);
    }
}
