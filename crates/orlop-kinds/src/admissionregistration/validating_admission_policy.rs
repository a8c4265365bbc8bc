//! ValidatingAdmissionPolicy: CEL validation of requests.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names,
};
use orlop_cel::{AdmissionVariables, ReturnType};
use serde_json::{Value, json};

use super::{
    admission_policy::{AdmissionPolicy, column_definitions, param_kind},
    policy_expressions::PolicyExpressions,
};
use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{list, mark_repeated, text},
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

/// Maximum number of audit annotations of a policy.
const AUDIT_ANNOTATIONS_MAX: usize = 20;
/// Maximum length of the expression of an audit annotation.
const VALUE_EXPRESSION_BYTES_MAX: usize = 5 * 1024;

fn validate_validations(
    policy: &Value,
    expressions: &mut PolicyExpressions<'_>,
    path: &FieldPath,
) -> Vec<FieldError> {
    let spec = policy.get("spec").unwrap_or(&Value::Null);
    let (validations, annotations) = (list(spec, "/validations"), list(spec, "/auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        let detail = "validations or auditAnnotations must contain at least one item";
        let missing = |field| FieldError::required(&path.child(field), detail);
        return vec![missing("validations"), missing("auditAnnotations")];
    }
    let mut errors = Vec::new();
    for (index, validation) in validations.iter().enumerate() {
        let path = path.child("validations").index(index);
        errors.extend(validate_validation(validation, expressions, &path));
    }
    let at = path.child("auditAnnotations");
    if annotations.len() > AUDIT_ANNOTATIONS_MAX {
        let detail = format!("must not have more than {AUDIT_ANNOTATIONS_MAX} auditAnnotations");
        errors.push(FieldError::invalid(&at, json!(annotations), detail));
    }
    let repeated = mark_repeated(annotations, |annotation| text(annotation, "/key"));
    for ((index, annotation), repeated) in annotations.iter().enumerate().zip(repeated) {
        let at = at.index(index);
        errors.extend(validate_audit_annotation(policy, annotation, expressions, &at));
        if repeated {
            errors.push(FieldError::duplicate(&at.child("key"), text(annotation, "/key")));
        }
    }
    errors
}

fn validate_validation(
    validation: &Value,
    expressions: &mut PolicyExpressions<'_>,
    path: &FieldPath,
) -> Vec<FieldError> {
    const REASONS: &[&str] = &["Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized"];
    const BLANK: &str = "must be non-empty if specified";
    let mut errors = Vec::new();
    let is_blank = |text: &str| !text.is_empty() && text.trim().is_empty();
    let declared = expressions.declared();
    let (expression, at) = (text(validation, "/expression"), path.child("expression"));
    if expression.trim().is_empty() {
        errors.push(FieldError::required(&at, "expression is not specified"));
    } else {
        errors.extend(expressions.validate(expression, expression, declared, ReturnType::Bool, &at));
    }
    let (expression, at) = (text(validation, "/messageExpression"), path.child("messageExpression"));
    if is_blank(expression) {
        errors.push(FieldError::invalid(&at, expression, BLANK));
    } else if !expression.is_empty() {
        let declared = AdmissionVariables { authorizer: false, ..declared };
        errors.extend(expressions.validate(expression, expression, declared, ReturnType::String, &at));
    }
    let (message, at) = (text(validation, "/message"), path.child("message"));
    if is_blank(message) {
        errors.push(FieldError::invalid(&at, message, BLANK));
    } else if message.trim().contains(['\n', '\r']) {
        errors.push(FieldError::invalid(&at, message, "must not contain line breaks"));
    }
    errors.extend(validation::validate_supported(validation, "reason", path, REASONS));
    errors
}

fn validate_audit_annotation(
    policy: &Value,
    annotation: &Value,
    expressions: &mut PolicyExpressions<'_>,
    path: &FieldPath,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (name, key) = (text(policy, "/metadata/name"), text(annotation, "/key"));
    let at = path.child("key");
    if name.is_empty() {
        errors.push(FieldError::invalid(&at, key, "requires metadata.name be non-empty"));
    } else {
        let qualified = format!("{name}/{key}");
        let problems = names::qualified_name(&qualified);
        errors.extend(validation::invalid_for_each(&at, qualified.as_str(), problems));
    }
    let (given, at) = (text(annotation, "/valueExpression"), path.child("valueExpression"));
    let expression = given.trim();
    if expression.is_empty() {
        errors.push(FieldError::required(&at, "valueExpression is not specified"));
    } else if expression.len() > VALUE_EXPRESSION_BYTES_MAX {
        let detail = format!("must not exceed {VALUE_EXPRESSION_BYTES_MAX} bytes in length");
        errors.push(FieldError::required(&at, detail));
    } else {
        let declared = expressions.declared();
        errors.extend(expressions.validate(expression, given, declared, ReturnType::StringOrNull, &at));
    }
    errors
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

    /// Messages for a policy `p` with these fields beside its constraints.
    fn validate(fields: &Value) -> Vec<String> {
        messages(KIND.strategy.validate(&policy(fields)))
    }

    fn policy(fields: &Value) -> Value {
        let rules = json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]);
        let mut spec = json!({"matchConstraints": {"resourceRules": rules}});
        for (name, value) in fields.as_object().unwrap() {
            spec[name] = value.clone();
        }
        json!({"metadata": {"name": "p"}, "spec": spec})
    }

    #[test]
    fn expressions_are_compiled_with_their_declarations() {
        assert_eq!(
            validate(&json!({
                "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
                "variables": [{"name": "n", "expression": "object.spec.replicas"}],
                "validations": [{
                    "expression": "variables.n > 1 && params.data.x == 'y' && authorizer.path('/x').check('get').allowed()",
                    "messageExpression": "'n is ' + string(variables.n)",
                }],
                "auditAnnotations": [{"key": "k", "valueExpression": "has(object.x) ? 'x' : string(variables.n)"}],
            })),
            Vec::<String>::new()
        );
        assert_eq!(
            validate(&json!({
                "variables": [
                    {"name": "a", "expression": "variables.b"},
                    {"name": "b", "expression": "1"},
                    {"name": "for", "expression": " "},
                ],
                "validations": [
                    {"expression": "object.x"},
                    {"expression": "true", "messageExpression": "authorizer.path('/').check('get').reason()"},
                    {"expression": "params.x == 1"},
                ],
                "auditAnnotations": [{"key": "k/k", "valueExpression": "1"}, {"key": "k", "valueExpression": "''"}, {"key": "k", "valueExpression": ""}],
            })),
            [
                "spec.variables[0].expression: Invalid value: \"variables.b\": compilation failed: ERROR: <input>:1:10: undefined field 'b'\n | variables.b\n | .........^",
                "spec.variables[2].name: Invalid value: \"for\": must be a valid CEL identifier",
                "spec.variables[2].expression: Required value: expression is not specified",
                "spec.validations[0].expression: Invalid value: \"object.x\": must evaluate to bool but got dyn",
                "spec.validations[1].messageExpression: Invalid value: \"authorizer.path('/').check('get').reason()\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'authorizer' (in container '')\n | authorizer.path('/').check('get').reason()\n | ^",
                "spec.validations[2].expression: Invalid value: \"params.x == 1\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'params' (in container '')\n | params.x == 1\n | ^",
                "spec.auditAnnotations[0].key: Invalid value: \"p/k/k\": a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                "spec.auditAnnotations[0].valueExpression: Invalid value: \"1\": must evaluate to one of [string null_type] but got int",
                "spec.auditAnnotations[2].valueExpression: Required value: valueExpression is not specified",
                "spec.auditAnnotations[2].key: Duplicate value: \"k\"",
            ]
        );
    }

    #[test]
    fn param_kind_must_name_a_kind() {
        let validations = json!([{"expression": "true"}]);
        let param_kind = |version: &str, kind: &str| {
            validate(&json!({"validations": validations, "paramKind": {"apiVersion": version, "kind": kind}}))
        };
        assert_eq!(
            param_kind("", ""),
            ["spec.paramKind.apiVersion: Required value", "spec.paramKind.kind: Required value"]
        );
        assert_eq!(
            param_kind("a/b/c", "K"),
            ["spec.paramKind.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c"]
        );
        assert_eq!(
            param_kind("a/", "K"),
            ["spec.paramKind.apiVersion: Invalid value: \"a/\": version must be specified"]
        );
        assert!(
            param_kind("A/v1", "K")[0].starts_with(
                "spec.paramKind.apiVersion: Invalid value: \"A\": a lowercase RFC 1123 subdomain"
            )
        );
        assert!(param_kind("v1", "k!")[0].starts_with("spec.paramKind.kind: Invalid value: \"k!\": may have mixed case, but should otherwise match: a DNS-1035 label"));
        assert_eq!(param_kind("example.com/v1", "Widget"), Vec::<String>::new());
    }

    #[test]
    fn update_keeps_stored_expressions_and_status_is_validated_by_itself() {
        let old = policy(&json!({"validations": [{"expression": "[1].includes(1)"}]}));
        assert!(messages(KIND.strategy.validate(&old))[0].contains("undeclared reference to 'includes'"));
        assert_eq!(messages(KIND.strategy.validate_replacement(&old, &old, "")), Vec::<String>::new());
        let status = json!({"status": {"typeChecking": {"expressionWarnings": [{"warning": "w"}]}}});
        assert_eq!(
            messages(KIND.strategy.validate_replacement(&status, &old, "status")),
            ["status.typeChecking.expressionWarnings[0].fieldRef: Required value"]
        );
    }
}
