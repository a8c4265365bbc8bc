//! MutatingAdmissionPolicy: CEL mutation of requests.

use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::Value;

use super::admission_policy::{AdmissionPolicy, column_definitions, param_kind};
use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{list, texts},
    printer::{PrinterColumns, age, name},
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags {
        allow_unconditional_update: false,
        qualified_finalizers: false,
        tracks_generation: true,
        ..StrategyFlags::BUILTIN
    },
    columns: &COLUMNS,
    strategy: &AdmissionPolicy { mutating: true, validate_rules: validate_mutations },
    ..BuiltinKind::new("admissionregistration.k8s.io", "mutatingadmissionpolicies")
};

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &column_definitions("Mutations"),
    cells: |object, now| {
        vec![name(object), list(object, "/spec/mutations").len().into(), param_kind(object), age(object, now)]
    },
};

fn validate_mutations(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let at = path.child("matchConstraints").child("resourceRules").child("operations");
    for rule in list(spec, "/matchConstraints/resourceRules") {
        let unfit = texts(rule, "/operations").into_iter().filter(|it| !matches!(*it, "CREATE" | "UPDATE"));
        errors.extend(unfit.map(|it| FieldError::not_supported(&at, it, &["CREATE", "UPDATE"])));
    }
    if list(spec, "/mutations").is_empty() {
        let detail = "mutations must contain at least one item";
        errors.push(FieldError::required(&path.child("mutations"), detail));
    }
    errors.extend(validation::validate_supported(spec, "reinvocationPolicy", path, &["IfNeeded", "Never"]));
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::tests::messages;

    #[test]
    fn policy_requires_mutations_and_rejects_deletes() {
        let rules = json!([{"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]);
        assert_eq!(
            messages(
                KIND.strategy.validate(&json!({"spec": {"matchConstraints": {"resourceRules": rules}}}))
            ),
            [
                r#"spec.matchConstraints.resourceRules.operations: Unsupported value: "DELETE": supported values: "CREATE", "UPDATE""#,
                "spec.mutations: Required value: mutations must contain at least one item",
            ]
        );
    }
}
