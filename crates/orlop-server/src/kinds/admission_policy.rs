//! Admission policies and their bindings: who has a say in a write, by expressions. The expressions
//! themselves are checked where they are compiled.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    group_version::GroupVersion,
    labels, names,
};
use serde_json::Value;

use super::{
    admission::{conditions, match_defaults, rule},
    check,
    columns::{Heading, Table, name, selector},
    fill,
    read::{list, present, text, texts},
};
use crate::{
    registry::Hooks,
    table::{Columns, age},
};

const fn policy_headings(counted: &'static str) -> [Heading; 4] {
    [Heading::NAME, Heading::integer(counted), Heading::text("ParamKind"), Heading::AGE]
}

static VALIDATING_POLICIES: Table = Table {
    headings: &policy_headings("Validations"),
    cells: |object, now| {
        vec![
            name(object),
            list(object, "/spec/validations").len().into(),
            param_kind(object),
            age(object, now),
        ]
    },
};

static MUTATING_POLICIES: Table = Table {
    headings: &policy_headings("Mutations"),
    cells: |object, now| {
        vec![name(object), list(object, "/spec/mutations").len().into(), param_kind(object), age(object, now)]
    },
};

static BINDINGS: Table = Table {
    headings: &[Heading::NAME, Heading::text("PolicyName"), Heading::text("ParamRef"), Heading::AGE],
    cells: |object, now| {
        vec![name(object), text(object, "/spec/policyName").into(), param_ref(object), age(object, now)]
    },
};

fn param_kind(policy: &Value) -> Value {
    present(policy, "/spec/paramKind").map_or_else(
        || "<unset>".into(),
        |kind| format!("{}/{}", text(kind, "/apiVersion"), text(kind, "/kind")).into(),
    )
}

fn param_ref(binding: &Value) -> Value {
    let Some(reference) = present(binding, "/spec/paramRef") else { return "<unset>".into() };
    match (text(reference, "/namespace"), text(reference, "/name")) {
        (_, "") => {
            present(reference, "/selector").map_or_else(|| "<unset>".into(), |given| selector(Some(given)))
        }
        // Whether parameters are namespaced cannot be told from here.
        ("", name) => format!("*/{name}").into(),
        (namespace, name) => format!("{namespace}/{name}").into(),
    }
}

/// Policies of either kind.
pub(super) struct Policy {
    pub(super) mutating: bool,
}

impl Hooks for Policy {
    fn default(&self, object: &mut Value) {
        let mutating = self.mutating;
        let Some(spec) = fill::child(object, "spec") else { return };
        fill::absent(spec, "failurePolicy", "Fail");
        if mutating {
            fill::absent(spec, "reinvocationPolicy", "Never");
        }
        if let Some(constraints) = fill::child(spec, "matchConstraints") {
            default_matches(constraints);
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let (spec, path) = (object.get("spec").unwrap_or(&Value::Null), FieldPath::root("spec"));
        let mut errors: Vec<FieldError> =
            check::supported(spec, "failurePolicy", &path, &["Fail", "Ignore"]).into_iter().collect();
        errors.extend(parameter_kind(spec, &path.child("paramKind")));
        errors.extend(conditions(spec, &path));
        let at = path.child("matchConstraints");
        match present(spec, "/matchConstraints") {
            None => errors.push(FieldError::required(&at, "")),
            Some(constraints) => {
                errors.extend(matches(constraints, &at));
                if list(constraints, "/resourceRules").is_empty() {
                    errors.push(FieldError::required(&at.child("resourceRules"), ""));
                }
            }
        }
        errors.extend(if self.mutating { mutations(spec, &path) } else { validations(spec, &path) });
        errors
    }

    fn columns(&self) -> Option<&dyn Columns> {
        Some(if self.mutating { &MUTATING_POLICIES } else { &VALIDATING_POLICIES })
    }
}

/// Of which kind a policy's parameters are.
fn parameter_kind(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let Some(kind) = present(spec, "/paramKind") else { return Vec::new() };
    let version = text(kind, "/apiVersion");
    let mut errors: Vec<FieldError> = check::required(kind, "apiVersion", path).into_iter().collect();
    if GroupVersion::parse(version).is_err() {
        let detail = format!("unexpected GroupVersion string: {version}");
        errors.push(FieldError::invalid(&path.child("apiVersion"), version, detail));
    }
    errors.extend(check::required(kind, "kind", path));
    errors
}

fn default_matches(matched: &mut Value) {
    match_defaults(matched);
    for field in ["resourceRules", "excludeResourceRules"] {
        fill::items(matched, field).for_each(|rule| fill::absent(rule, "scope", "*"));
    }
}

/// What is wrong with what a policy or a binding matches.
fn matches(matched: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> =
        check::supported(matched, "matchPolicy", path, &["Equivalent", "Exact"]).into_iter().collect();
    for field in ["namespaceSelector", "objectSelector"] {
        if let Some(given) = present(matched, &format!("/{field}")) {
            errors.extend(labels::validate_label_selector(given, &path.child(field)));
        }
    }
    for field in ["resourceRules", "excludeResourceRules"] {
        errors.extend(check::every(matched, field, path, rule));
    }
    errors
}

fn validations(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    const REASONS: &[&str] = &["Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized"];
    if list(spec, "/validations").is_empty() && list(spec, "/auditAnnotations").is_empty() {
        let detail = "validations or auditAnnotations must contain at least one item";
        let missing = |field| FieldError::required(&path.child(field), detail);
        return vec![missing("validations"), missing("auditAnnotations")];
    }
    check::every(spec, "validations", path, |validation, path| {
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
        errors.extend(check::supported(validation, "reason", path, REASONS));
        errors
    })
}

fn mutations(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
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
    errors.extend(check::supported(spec, "reinvocationPolicy", path, &["IfNeeded", "Never"]));
    errors
}

/// Bindings of policies of either kind.
pub(super) struct PolicyBinding {
    pub(super) mutating: bool,
}

impl Hooks for PolicyBinding {
    fn default(&self, object: &mut Value) {
        if let Some(matched) = fill::at(object, "/spec/matchResources") {
            default_matches(matched);
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let (spec, path) = (object.get("spec").unwrap_or(&Value::Null), FieldPath::root("spec"));
        let at = path.child("policyName");
        let mut errors = match text(spec, "/policyName") {
            "" => vec![FieldError::required(&at, "")],
            policy => check::dns_subdomain(policy, &at),
        };
        if let Some(reference) = present(spec, "/paramRef") {
            errors.extend(parameters(reference, &path.child("paramRef")));
        }
        if let Some(matched) = present(spec, "/matchResources") {
            errors.extend(matches(matched, &path.child("matchResources")));
        }
        if !self.mutating {
            errors.extend(actions(&texts(spec, "/validationActions"), &path.child("validationActions")));
        }
        errors
    }

    fn columns(&self) -> Option<&dyn Columns> {
        Some(&BINDINGS)
    }
}

/// What is wrong with a reference to parameters.
fn parameters(reference: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (name, chosen) = (text(reference, "/name"), present(reference, "/selector"));
    let exclusive =
        |field| FieldError::forbidden(&path.child(field), "name and selector are mutually exclusive");
    if !name.is_empty() {
        errors.extend(check::each(&path.child("name"), name, names::path_segment(name)));
        errors.extend(chosen.map(|_| exclusive("name")));
    }
    if let Some(chosen) = chosen {
        errors.extend(labels::validate_label_selector(chosen, &path.child("selector")));
        if !name.is_empty() {
            errors.push(exclusive("selector"));
        }
    } else if name.is_empty() {
        errors.push(FieldError::required(path, "one of name or selector must be specified"));
    }
    errors.extend(check::required_among(reference, "parameterNotFoundAction", path, &["Deny", "Allow"]));
    errors
}

/// What is wrong with what is to be done about a failed validation.
fn actions(actions: &[&str], path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, action) in actions.iter().enumerate() {
        if !matches!(*action, "Audit" | "Deny" | "Warn") {
            let known = &["Audit", "Deny", "Warn"];
            errors.push(FieldError::not_supported(&path.index(index), *action, known));
        }
        if actions.iter().take(index).any(|before| before == action) {
            errors.push(FieldError::duplicate(&path.index(index), *action));
        }
    }
    if actions.contains(&"Deny") && actions.contains(&"Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information \
                      in the API response and headers serves no purpose)";
        errors.push(FieldError::invalid(path, serde_json::json!(actions), detail));
    }
    if actions.is_empty() {
        errors.push(FieldError::required(path, "at least one validation action is required"));
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::check::tests::told, super::columns::tests::row, *};

    const BINDING: PolicyBinding = PolicyBinding { mutating: false };

    #[test]
    fn policies_and_bindings_show_their_parameters() {
        let policy = json!({"metadata": {"name": "p"}, "spec": {"validations": [{}], "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}});
        assert_eq!(
            row(&VALIDATING_POLICIES, &policy),
            json!(["p", 1, "v1/ConfigMap", "<unknown>"]).as_array().unwrap()[..]
        );
        let mut binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "paramRef": {"name": "x"}, "matchResources": {}}});
        BINDING.default(&mut binding);
        assert_eq!(binding["spec"]["matchResources"]["matchPolicy"], "Equivalent");
        assert_eq!(row(&BINDINGS, &binding), ["b", "p", "*/x", "<unknown>"]);
    }

    #[test]
    fn a_policy_says_what_it_matches_and_does() {
        assert_eq!(
            told(Policy { mutating: false }.validate(&json!({}))),
            [
                "spec.matchConstraints: Required value",
                "spec.validations: Required value: validations or auditAnnotations must contain at least one item",
                "spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item",
            ]
        );
        let rules = json!([{"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]);
        let spec = json!({"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": " ", "message": "a\nb", "reason": "X"}]});
        assert_eq!(
            told(Policy { mutating: false }.validate(&json!({"spec": spec}))),
            [
                "spec.validations[0].expression: Required value: expression is not specified",
                r#"spec.validations[0].message: Invalid value: "a\nb": must not contain line breaks"#,
                r#"spec.validations[0].reason: Unsupported value: "X": supported values: "Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized""#,
            ]
        );
        assert_eq!(
            told(
                Policy { mutating: true }
                    .validate(&json!({"spec": {"matchConstraints": {"resourceRules": rules}}}))
            ),
            [
                r#"spec.matchConstraints.resourceRules.operations: Unsupported value: "DELETE": supported values: "CREATE", "UPDATE""#,
                "spec.mutations: Required value: mutations must contain at least one item",
            ]
        );
    }

    #[test]
    fn a_binding_says_which_policy_and_what_then() {
        assert_eq!(
            told(BINDING.validate(&json!({}))),
            [
                "spec.policyName: Required value",
                "spec.validationActions: Required value: at least one validation action is required",
            ]
        );
        assert_eq!(
            told(PolicyBinding { mutating: true }.validate(&json!({}))),
            ["spec.policyName: Required value"]
        );
        let spec =
            json!({"policyName": "p", "validationActions": ["Deny", "Deny", "Warn", "X"], "paramRef": {}});
        assert_eq!(
            told(BINDING.validate(&json!({"spec": spec}))),
            [
                "spec.paramRef: Required value: one of name or selector must be specified",
                "spec.paramRef.parameterNotFoundAction: Required value",
                r#"spec.validationActions[1]: Duplicate value: "Deny""#,
                r#"spec.validationActions[3]: Unsupported value: "X": supported values: "Audit", "Deny", "Warn""#,
                r#"spec.validationActions: Invalid value: ["Deny","Deny","Warn","X"]: must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)"#,
            ]
        );
    }
}
