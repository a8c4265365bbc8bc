//! Lease: leader election and heartbeats.

use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::Value;

use crate::{
    BuiltinKind, StrategyFlags,
    accessors::text,
    printer::{ColumnDefinition, PrinterColumns, age, name},
    strategy::Strategy,
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags {
        allow_unconditional_update: false,
        allow_create_on_update: true,
        qualified_finalizers: false,
        ..StrategyFlags::BUILTIN
    },
    columns: &COLUMNS,
    strategy: &Lease,
    ..BuiltinKind::new("coordination.k8s.io", "leases")
};

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[ColumnDefinition::NAME, ColumnDefinition::text("Holder"), ColumnDefinition::AGE],
    cells: |object, now| vec![name(object), text(object, "/spec/holderIdentity").into(), age(object, now)],
};

pub(crate) struct Lease;

impl Strategy for Lease {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let path = FieldPath::root("spec");
        let spec = object.get("spec").unwrap_or(&Value::Null);
        let mut errors: Vec<FieldError> =
            validation::validate_positive(spec, "leaseDurationSeconds", &path).into_iter().collect();
        errors.extend(validation::validate_non_negative(spec, "leaseTransitions", &path));
        if spec.get("strategy").is_some_and(|strategy| !strategy.is_null()) {
            // Kubernetes repeats the field in the path.
            errors.extend(validate_strategy(
                text(spec, "/strategy"),
                &path.child("strategy").child("strategy"),
            ));
        }
        if !text(spec, "/preferredHolder").is_empty() && text(spec, "/strategy").is_empty() {
            let detail = "may only be specified if `strategy` is defined";
            errors.push(FieldError::forbidden(&path.child("preferredHolder"), detail));
        }
        errors
    }
}

/// Validates the strategy: Kubernetes' own, or a domain-prefixed name.
fn validate_strategy(strategy: &str, path: &FieldPath) -> Vec<FieldError> {
    const OWN: &str = "OldestEmulationVersion";
    if strategy == OWN {
        return Vec::new();
    }
    if strategy.contains('/') {
        return validation::invalid_for_each(path, strategy, orlop_api::names::qualified_name(strategy));
    }
    vec![FieldError::not_supported(path, strategy, &[OWN])]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{printer::tests::row, validation::tests::messages};

    #[test]
    fn invalid_numbers_and_strategies_are_rejected() {
        let validation_errors = |spec: Value| messages(Lease.validate(&json!({"spec": spec})));
        assert!(validation_errors(json!({"leaseDurationSeconds": 15, "leaseTransitions": 0})).is_empty());
        assert!(messages(Lease.validate(&json!({}))).is_empty());
        assert_eq!(
            validation_errors(
                json!({"leaseDurationSeconds": 0, "leaseTransitions": -1, "preferredHolder": "x"})
            ),
            [
                "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
                "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
                "spec.preferredHolder: Forbidden: may only be specified if `strategy` is defined",
            ]
        );
        assert_eq!(
            validation_errors(json!({"strategy": "x"})),
            [r#"spec.strategy.strategy: Unsupported value: "x": supported values: "OldestEmulationVersion""#]
        );
        let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}});
        assert_eq!(row(&COLUMNS, &lease), ["l", "me", "<unknown>"]);
    }
}
