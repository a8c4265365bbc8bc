//! MutatingAdmissionPolicy: CEL mutation of requests.

use orlop_api::field_error::{FieldError, FieldPath};
use orlop_cel::{AdmissionVariables, ReturnType};
use serde_json::Value;

use super::{
    admission_policy::{AdmissionPolicy, column_definitions, param_kind},
    policy_expressions::PolicyExpressions,
};
use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{list, present, text},
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

fn validate_mutations(
    policy: &Value,
    expressions: &mut PolicyExpressions<'_>,
    path: &FieldPath,
) -> Vec<FieldError> {
    let spec = policy.get("spec").unwrap_or(&Value::Null);
    let (mutations, at) = (list(spec, "/mutations"), path.child("mutations"));
    let mut errors = Vec::new();
    if mutations.is_empty() {
        errors.push(FieldError::required(&at, "mutations must contain at least one item"));
    }
    for (index, mutation) in mutations.iter().enumerate() {
        errors.extend(validate_mutation(mutation, expressions, &at.index(index)));
    }
    errors.extend(validation::validate_supported(spec, "reinvocationPolicy", path, &["IfNeeded", "Never"]));
    errors
}

fn validate_mutation(
    mutation: &Value,
    expressions: &mut PolicyExpressions<'_>,
    path: &FieldPath,
) -> Vec<FieldError> {
    const PATCH_TYPES: &[&str] = &["ApplyConfiguration", "JSONPatch"];
    const FIELDS: [(&str, ReturnType); 2] =
        [("applyConfiguration", ReturnType::ApplyConfiguration), ("jsonPatch", ReturnType::JsonPatch)];
    let patch_type = text(mutation, "/patchType");
    let [(field, returns), (other, _)] = match patch_type {
        "" => return vec![FieldError::required(&path.child("patchType"), "")],
        "ApplyConfiguration" => FIELDS,
        "JSONPatch" => [FIELDS[1], FIELDS[0]],
        _ => return vec![FieldError::not_supported(&path.child("patchType"), patch_type, PATCH_TYPES)],
    };
    let mut errors = Vec::new();
    let at = path.child(field);
    match present(mutation, &format!("/{field}")) {
        None => {
            let detail = format!("must be specified when patchType is {patch_type}");
            errors.push(FieldError::required(&at, detail));
        }
        Some(given) => {
            let (expression, at) = (text(given, "/expression").trim(), at.child("expression"));
            if expression.is_empty() {
                errors.push(FieldError::required(&at, ""));
            } else {
                let declared = AdmissionVariables { patch_types: true, ..expressions.declared() };
                errors.extend(expressions.validate(expression, expression, declared, returns, &at));
            }
        }
    }
    if present(mutation, &format!("/{other}")).is_some() {
        let detail = format!("must not be specified when patchType is {patch_type}");
        errors.push(FieldError::invalid(&path.child(other), format!("{{{other}}}"), detail));
    }
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

    #[test]
    fn mutations_are_compiled_by_patch_type() {
        let validate = |mutations: Value| {
            let rules = json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]);
            let spec = json!({"matchConstraints": {"resourceRules": rules}, "mutations": mutations});
            messages(KIND.strategy.validate(&json!({"spec": spec})))
        };
        assert_eq!(
            validate(json!([
                {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{spec: Object.spec{replicas: 1}}"}},
                {"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'remove', path: '/spec/' + jsonpatch.escapeKey('a/b')}]"}},
            ])),
            Vec::<String>::new()
        );
        assert_eq!(
            validate(json!([
                {"patchType": "ApplyConfiguration", "jsonPatch": {"expression": "[]"}},
                {"patchType": "JSONPatch", "jsonPatch": {"expression": "Object{}"}},
                {"patchType": "JSONPatch", "jsonPatch": {"expression": " "}, "applyConfiguration": {"expression": "x"}},
                {"patchType": "X"},
                {},
            ])),
            [
                "spec.mutations[0].applyConfiguration: Required value: must be specified when patchType is ApplyConfiguration",
                "spec.mutations[0].jsonPatch: Invalid value: \"{jsonPatch}\": must not be specified when patchType is ApplyConfiguration",
                "spec.mutations[1].jsonPatch.expression: Invalid value: \"Object{}\": must evaluate to list(JSONPatch) but got Object",
                "spec.mutations[2].jsonPatch.expression: Required value",
                "spec.mutations[2].applyConfiguration: Invalid value: \"{applyConfiguration}\": must not be specified when patchType is JSONPatch",
                "spec.mutations[3].patchType: Unsupported value: \"X\": supported values: \"ApplyConfiguration\", \"JSONPatch\"",
                "spec.mutations[4].patchType: Required value",
            ]
        );
    }
}
