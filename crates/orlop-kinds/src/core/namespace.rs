//! Namespace: removed only after the namespace controller has deleted its content.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names::NameRule,
    object_meta::{self, FINALIZER_NAMESPACE},
};
use serde_json::{Value, json};

use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{is_terminating, list, text},
    defaulting,
    printer::{ColumnDefinition, PrinterColumns, age, name},
    strategy::{RequestContext, Strategy},
    update_scope::{UpdateScope, UpdateScopes},
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    name_rule: NameRule::Label,
    flags: StrategyFlags { returns_deleted_object: true, ..StrategyFlags::BUILTIN },
    selectable_fields: &["status.phase"],
    immortal_names: &["default", "kube-system", "kube-public"],
    update_scopes: UPDATE_SCOPES,
    columns: &COLUMNS,
    strategy: &Namespace,
    ..BuiltinKind::new("", "namespaces")
};

const UPDATE_SCOPES: UpdateScopes = &[
    ("", UpdateScope::preserving(&["/spec/finalizers", "/status"], &["/status"])),
    ("finalize", UpdateScope::ALL_BUT_STATUS),
];

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[ColumnDefinition::NAME, ColumnDefinition::text("Status"), ColumnDefinition::AGE],
    cells: |object, now| vec![name(object), text(object, "/status/phase").into(), age(object, now)],
};

pub(crate) struct Namespace;

impl Strategy for Namespace {
    fn set_defaults(&self, object: &mut Value) {
        // A generated name is not known yet.
        if !text(object, "/metadata/name").is_empty() {
            set_name_label(object);
        }
    }

    fn prepare_for_create(&self, object: &mut Value, _context: &RequestContext<'_>) {
        let mut finalizers = list(object, "/spec/finalizers").to_vec();
        if !finalizers.iter().any(|finalizer| finalizer == FINALIZER_NAMESPACE) {
            finalizers.push(FINALIZER_NAMESPACE.into());
        }
        object["spec"] = json!({"finalizers": finalizers});
        object["status"] = json!({"phase": "Active"});
        set_name_label(object);
    }

    fn prepare_for_update(&self, object: &mut Value, _old: &Value, _context: &RequestContext<'_>) {
        set_name_label(object);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let spec = object.get("spec").and_then(Value::as_object);
        let path = FieldPath::root("spec");
        spec.map(|spec| object_meta::unqualified_finalizers(spec, &path)).unwrap_or_default()
    }

    fn validate_subresource_update(
        &self,
        subresource: &str,
        object: &Value,
        _old: &Value,
    ) -> Vec<FieldError> {
        let (phase, path) = (text(object, "/status/phase"), FieldPath::root("status").child("Phase"));
        let expected = if is_terminating(object) { "Terminating" } else { "Active" };
        if subresource != "status" || phase == expected {
            return Vec::new();
        }
        let not = if is_terminating(object) { " not" } else { "" };
        let detail = format!("may only be '{expected}' if `deletionTimestamp` is{not} empty");
        vec![FieldError::invalid(&path, phase, detail)]
    }

    /// The first delete settles the propagation policy.
    fn accepts_propagation_policy(&self, object: &Value) -> bool {
        !is_terminating(object)
    }

    fn mark_terminating(&self, object: &mut Value) {
        // Namespaces have no grace period, not even one of 0 s.
        defaulting::remove_field(&mut object["metadata"], "deletionGracePeriodSeconds");
        object["status"]["phase"] = "Terminating".into();
    }

    /// The namespace controller removes `spec.finalizers` once the namespace is empty.
    fn has_pending_finalization(&self, object: &Value) -> bool {
        !list(object, "/spec/finalizers").is_empty()
    }
}

/// Sets the label that selects a namespace by name.
fn set_name_label(object: &mut Value) {
    let name = object["metadata"]["name"].clone();
    if !object["metadata"]["labels"].is_object() {
        object["metadata"]["labels"] = json!({});
    }
    object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::printer::tests::row;
    use crate::strategy::tests::context;

    #[test]
    fn create_sets_phase_finalizer_and_name_label() {
        let mut object = json!({"metadata": {"name": "n"}});
        Namespace.prepare_for_create(&mut object, &context());
        assert_eq!(object["spec"], json!({"finalizers": ["kubernetes"]}));
        assert_eq!(object["metadata"]["labels"], json!({"kubernetes.io/metadata.name": "n"}));
        assert_eq!(row(&COLUMNS, &object), ["n", "Active", "<unknown>"]);
    }
}
