//! PriorityClass: a named pod priority.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    object_meta,
};
use serde_json::Value;

use crate::{
    BuiltinKind,
    accessors::{flag, integer, text},
    defaulting,
    printer::{ColumnDefinition, PrinterColumns, age, name},
    strategy::{RequestContext, Strategy},
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    columns: &COLUMNS,
    strategy: &PriorityClass,
    ..BuiltinKind::new("scheduling.k8s.io", "priorityclasses")
};

const SYSTEM_PREFIX: &str = "system-";
const SYSTEM: &[(&str, i64)] =
    &[("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];
const USER_MAX: i64 = 1_000_000_000;

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::integer("Value"),
        ColumnDefinition::boolean("Global-Default"),
        ColumnDefinition::AGE,
        ColumnDefinition::text("PreemptionPolicy"),
    ],
    cells: |object, now| {
        vec![
            name(object),
            integer(object, "/value").into(),
            flag(object, "/globalDefault").into(),
            age(object, now),
            text(object, "/preemptionPolicy").into(),
        ]
    },
};

pub(crate) struct PriorityClass;

impl Strategy for PriorityClass {
    fn set_defaults(&self, object: &mut Value) {
        defaulting::set_if_absent(object, "preemptionPolicy", "PreemptLowerPriority");
    }

    fn prepare_for_create(&self, object: &mut Value, _context: &RequestContext<'_>) {
        // The generation is 1 and never changes.
        object["metadata"]["generation"] = 1.into();
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let name = object_meta::text(object_meta::of(object), "name");
        let value = integer(object, "/value");
        let mut errors = Vec::new();
        if name.starts_with(SYSTEM_PREFIX) {
            errors.extend(validate_system_class(name, value, flag(object, "/globalDefault")));
        } else if value > USER_MAX {
            let detail = format!("maximum allowed value of a user defined priority is {USER_MAX}");
            errors.push(FieldError::forbidden(&FieldPath::root("value"), detail));
        }
        let policies = &["PreemptLowerPriority", "Never"];
        errors.extend(validation::require_supported(object, "preemptionPolicy", &FieldPath::nil(), policies));
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if integer(object, "/value") != integer(old, "/value") {
            errors.push(FieldError::forbidden(&FieldPath::root("value"), "may not be changed in an update."));
        }
        errors.extend(validation::validate_immutable(object, old, "preemptionPolicy", &FieldPath::nil()));
        errors
    }
}

/// Validates that names with the system prefix are the built-in classes.
fn validate_system_class(name: &str, value: i64, global_default: bool) -> Option<FieldError> {
    let problem = match SYSTEM.iter().find(|(known, _)| *known == name) {
        None => format!("{name} is not a known system priority class"),
        Some((_, known)) if *known != value => format!("value of {name} PriorityClass must be {known}"),
        Some(_) if global_default => format!("globalDefault of {name} PriorityClass must be false"),
        Some(_) => return None,
    };
    let detail = format!(
        "priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use only. error: {problem}"
    );
    Some(FieldError::forbidden(&FieldPath::root("metadata").child("name"), detail))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{printer::tests::row, validation::tests::messages};

    #[test]
    fn system_prefix_is_reserved() {
        let validation_errors =
            |name: &str, value: i64| {
                messages(PriorityClass.validate(
                    &json!({"metadata": {"name": name}, "value": value, "preemptionPolicy": "Never"}),
                ))
            };
        assert!(validation_errors("a", USER_MAX).is_empty());
        assert!(validation_errors("system-node-critical", 2_000_001_000).is_empty());
        assert_eq!(
            validation_errors("a", USER_MAX + 1),
            ["value: Forbidden: maximum allowed value of a user defined priority is 1000000000"]
        );
        assert_eq!(
            validation_errors("system-x", 1),
            [
                "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: system-x is not a known system priority class"
            ]
        );
    }

    #[test]
    fn value_is_immutable() {
        let mut class = json!({"metadata": {"name": "c"}, "value": 5});
        PriorityClass.set_defaults(&mut class);
        assert_eq!(class["preemptionPolicy"], "PreemptLowerPriority");
        let changed = json!({"value": 6, "preemptionPolicy": "Never"});
        assert_eq!(
            messages(PriorityClass.validate_update(&changed, &class)),
            [
                "value: Forbidden: may not be changed in an update.",
                "preemptionPolicy: Invalid value: \"Never\": field is immutable"
            ]
        );
        assert_eq!(
            row(&COLUMNS, &class),
            json!(["c", 5, false, "<unknown>", "PreemptLowerPriority"]).as_array().unwrap()[..]
        );
    }
}
