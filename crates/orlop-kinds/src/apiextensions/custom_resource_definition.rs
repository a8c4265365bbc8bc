//! CustomResourceDefinition: its validation is in `orlop-crd`.

use orlop_api::{field_error::FieldError, time::Time};
use orlop_crd::{Condition, Conditions, TERMINATING};
use serde_json::{Value, json};

use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{condition, flag, is_terminating, list, text, texts},
    printer::{ColumnDefinition, PrinterColumns, name},
    strategy::{RequestContext, Strategy},
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags {
        allow_unconditional_update: false,
        qualified_finalizers: false,
        tracks_generation: true,
        ..StrategyFlags::BUILTIN
    },
    columns: &COLUMNS,
    strategy: &CustomResourceDefinition,
    ..BuiltinKind::new("apiextensions.k8s.io", "customresourcedefinitions")
};

/// Holds a terminating definition until all of its objects are deleted.
pub const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::text("Scope"),
        ColumnDefinition::text("Versions"),
        ColumnDefinition::date("Created At"),
        ColumnDefinition::wide("Group"),
        ColumnDefinition::wide("Kind"),
        ColumnDefinition::wide("ShortNames"),
        ColumnDefinition::wide_boolean("Established"),
    ],
    cells: |object, _| {
        let established = condition(object, "Established");
        vec![
            name(object),
            text(object, "/spec/scope").into(),
            served_versions(object).into(),
            text(object, "/metadata/creationTimestamp").into(),
            text(object, "/spec/group").into(),
            text(object, "/spec/names/kind").into(),
            texts(object, "/spec/names/shortNames").join(",").into(),
            established.is_some_and(|condition| text(condition, "/status") == "True").into(),
        ]
    },
};

/// Returns the versions that are served, sorted, with a mark at the one that is stored.
fn served_versions(object: &Value) -> String {
    let served = list(object, "/spec/versions").iter().filter(|version| flag(version, "/served"));
    let named = |version: &Value| {
        let mark = if flag(version, "/storage") { "(storage)" } else { "" };
        format!("{}{mark}", text(version, "/name"))
    };
    let mut versions: Vec<String> = served.map(named).collect();
    versions.sort_unstable();
    versions.join(",")
}

struct CustomResourceDefinition;

impl Strategy for CustomResourceDefinition {
    fn set_defaults(&self, object: &mut Value) {
        orlop_crd::apply_defaults(object);
    }

    fn prepare_for_create(&self, object: &mut Value, _context: &RequestContext<'_>) {
        object["status"] = json!({"conditions": [], "acceptedNames": {"plural": "", "kind": ""}});
        add_stored_version(object);
    }

    fn prepare_for_update(&self, object: &mut Value, old: &Value, _context: &RequestContext<'_>) {
        if object.get("spec") != old.get("spec") {
            add_stored_version(object);
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        orlop_crd::validate_create(object)
    }

    fn validate_replacement(&self, object: &Value, old: &Value, subresource: &str) -> Vec<FieldError> {
        match subresource {
            "status" => orlop_crd::validate_status_update(object, old),
            _ => orlop_crd::validate_update(object, old),
        }
    }

    fn prepare_for_delete(&self, object: &mut Value, context: &RequestContext<'_>) {
        if is_terminating(object) {
            return;
        }
        let finalizers = &mut object["metadata"]["finalizers"];
        match finalizers.as_array_mut() {
            Some(list) if list.iter().any(|name| name == FINALIZER) => {}
            Some(list) => list.push(FINALIZER.into()),
            None => *finalizers = json!([FINALIZER]),
        }
        let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
        set_terminating(object, "True", "InstanceDeletionPending", message, context.now);
    }

    fn warnings_on_create(&self, object: &Value) -> Vec<String> {
        orlop_crd::warnings(object, None)
    }

    fn warnings_on_update(&self, object: &Value, old: &Value) -> Vec<String> {
        orlop_crd::warnings(object, Some(old))
    }
}

/// Sets the condition that reports the progress of a definition's deletion.
pub fn set_terminating(object: &mut Value, status: &str, reason: &str, message: &str, now: Time) {
    let mut conditions = Conditions::of(object);
    conditions.set(Condition::new(TERMINATING, status, reason, message), now);
    object["status"]["conditions"] = conditions.to_value();
}

/// Returns true for a deleted definition whose custom resources still have to be deleted.
pub fn is_finalizing(object: &Value) -> bool {
    let finalizers = list(object, "/metadata/finalizers");
    is_terminating(object) && finalizers.iter().any(|finalizer| finalizer == FINALIZER)
}

/// Adds the storage version to `status.storedVersions`.
fn add_stored_version(object: &mut Value) {
    let versions = object.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
    let storage = versions.into_iter().find(|version| version["storage"] == true);
    let Some(name) = storage.and_then(|version| version["name"].as_str()).map(str::to_owned) else { return };
    let stored = &mut object["status"]["storedVersions"];
    match stored.as_array_mut() {
        Some(list) if list.iter().any(|known| *known == name) => {}
        Some(list) => list.push(name.into()),
        None => *stored = json!([name]),
    }
}
