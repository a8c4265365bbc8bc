//! ValidatingAdmissionPolicy: CEL validation of requests.

use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::Value;

use super::admission_policy::{AdmissionPolicy, column_definitions, param_kind};
use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{list, text},
    printer::{PrinterColumns, age, name},
    update_scope::STATUS_WITHOUT_METADATA,
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags {
        allow_unconditional_update: false,
        qualified_finalizers: false,
        tracks_generation: true,
        ..StrategyFlags::BUILTIN
    },
    update_scopes: STATUS_WITHOUT_METADATA,
    columns: &COLUMNS,
    strategy: &AdmissionPolicy { mutating: false, validate_rules: validate_validations },
    ..BuiltinKind::new("admissionregistration.k8s.io", "validatingadmissionpolicies")
};

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &column_definitions("Validations"),
    cells: |object, now| {
        vec![
            name(object),
            list(object, "/spec/validations").len().into(),
            param_kind(object),
            age(object, now),
        ]
    },
};

fn validate_validations(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    const REASONS: &[&str] = &["Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized"];
    if list(spec, "/validations").is_empty() && list(spec, "/auditAnnotations").is_empty() {
        let detail = "validations or auditAnnotations must contain at least one item";
        let missing = |field| FieldError::required(&path.child(field), detail);
        return vec![missing("validations"), missing("auditAnnotations")];
    }
    validation::validate_items(spec, "validations", path, |validation, path| {
        let mut errors = Vec::new();
        if text(validation, "/expression").trim().is_empty() {
            errors.push(FieldError::required(&path.child("expression"), "expression is not specified"));
        }
        for field in ["messageExpression", "message"] {
            let given = text(validation, &format!("/{field}"));
            if !given.is_empty() && given.trim().is_empty() {
                let detail = "must be non-empty if specified";
                errors.push(FieldError::invalid(&path.child(field), given, detail));
            }
        }
        let message = text(validation, "/message");
        if message.trim().contains(['\n', '\r']) {
            errors.push(FieldError::invalid(&path.child("message"), message, "must not contain line breaks"));
        }
        errors.extend(validation::validate_supported(validation, "reason", path, REASONS));
        errors
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{printer::tests::row, validation::tests::messages};

    #[test]
    fn row_shows_validation_count_and_parameter_kind() {
        let policy = json!({"metadata": {"name": "p"}, "spec": {"validations": [{}], "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}});
        assert_eq!(
            row(&COLUMNS, &policy),
            json!(["p", 1, "v1/ConfigMap", "<unknown>"]).as_array().unwrap()[..]
        );
    }

    #[test]
    fn policy_requires_match_constraints_and_complete_validations() {
        assert_eq!(
            messages(KIND.strategy.validate(&json!({}))),
            [
                "spec.matchConstraints: Required value",
                "spec.validations: Required value: validations or auditAnnotations must contain at least one item",
                "spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item",
            ]
        );
        let rules = json!([{"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]);
        let spec = json!({"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": " ", "message": "a\nb", "reason": "X"}]});
        assert_eq!(
            messages(KIND.strategy.validate(&json!({"spec": spec}))),
            [
                "spec.validations[0].expression: Required value: expression is not specified",
                r#"spec.validations[0].message: Invalid value: "a\nb": must not contain line breaks"#,
                r#"spec.validations[0].reason: Unsupported value: "X": supported values: "Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized""#,
            ]
        );
    }
}
