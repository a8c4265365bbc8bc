//! Strategy that ValidatingAdmissionPolicyBinding and MutatingAdmissionPolicyBinding share.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    labels, names,
};
use serde_json::Value;

use super::{
    admission_policy::{set_match_resources_defaults, validate_match_resources},
    static_names::{name_warning, validate_name},
};
use crate::{
    accessors::{present, text, texts},
    defaulting,
    printer::{ColumnDefinition, PrinterColumns, age, format_selector, name},
    strategy::Strategy,
    validation,
};

pub(crate) static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::text("PolicyName"),
        ColumnDefinition::text("ParamRef"),
        ColumnDefinition::AGE,
    ],
    cells: |object, now| {
        vec![name(object), text(object, "/spec/policyName").into(), param_ref(object), age(object, now)]
    },
};

fn param_ref(binding: &Value) -> Value {
    let Some(reference) = present(binding, "/spec/paramRef") else { return "<unset>".into() };
    match (text(reference, "/namespace"), text(reference, "/name")) {
        (_, "") => present(reference, "/selector")
            .map_or_else(|| "<unset>".into(), |given| format_selector(Some(given))),
        // The scope of the parameter kind is unknown here.
        ("", name) => format!("*/{name}").into(),
        (namespace, name) => format!("{namespace}/{name}").into(),
    }
}

/// Strategy of both kinds of bindings.
pub(crate) struct PolicyBinding {
    pub(crate) mutating: bool,
}

impl Strategy for PolicyBinding {
    fn set_defaults(&self, object: &mut Value) {
        if let Some(matched) = defaulting::object_at_mut(object, "/spec/matchResources") {
            set_match_resources_defaults(matched);
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = self.validate_spec(object);
        errors.extend(validate_name(object));
        errors
    }

    fn validate_replacement(&self, object: &Value, _old: &Value, _subresource: &str) -> Vec<FieldError> {
        self.validate_spec(object)
    }

    fn warnings_on_update(&self, object: &Value, _old: &Value) -> Vec<String> {
        name_warning(object).into_iter().collect()
    }
}

impl PolicyBinding {
    fn validate_spec(&self, object: &Value) -> Vec<FieldError> {
        let (spec, path) = (object.get("spec").unwrap_or(&Value::Null), FieldPath::root("spec"));
        let at = path.child("policyName");
        let mut errors = match text(spec, "/policyName") {
            "" => vec![FieldError::required(&at, "")],
            policy => validation::validate_dns_subdomain(policy, &at),
        };
        if let Some(reference) = present(spec, "/paramRef") {
            errors.extend(validate_param_ref(reference, &path.child("paramRef")));
        }
        if let Some(matched) = present(spec, "/matchResources") {
            errors.extend(validate_match_resources(matched, &path.child("matchResources"), self.mutating));
        }
        if !self.mutating {
            errors.extend(validate_validation_actions(
                &texts(spec, "/validationActions"),
                &path.child("validationActions"),
            ));
        }
        errors
    }
}

/// Validates paramRef.
fn validate_param_ref(reference: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (name, chosen) = (text(reference, "/name"), present(reference, "/selector"));
    let exclusive =
        |field| FieldError::forbidden(&path.child(field), "name and selector are mutually exclusive");
    if !name.is_empty() {
        errors.extend(validation::invalid_for_each(&path.child("name"), name, names::path_segment(name)));
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
    errors.extend(validation::require_supported(
        reference,
        "parameterNotFoundAction",
        path,
        &["Deny", "Allow"],
    ));
    errors
}

/// Validates validationActions.
fn validate_validation_actions(actions: &[&str], path: &FieldPath) -> Vec<FieldError> {
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
        errors.push(FieldError::required(path, "").declaratively());
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{printer::tests::row, validation::tests::messages};

    const BINDING: PolicyBinding = PolicyBinding { mutating: false };

    #[test]
    fn binding_requires_policy_and_actions() {
        assert_eq!(
            messages(BINDING.validate(&json!({}))),
            ["spec.policyName: Required value", "spec.validationActions: Required value",]
        );
        assert_eq!(
            messages(PolicyBinding { mutating: true }.validate(&json!({}))),
            ["spec.policyName: Required value"]
        );
        let spec =
            json!({"policyName": "p", "validationActions": ["Deny", "Deny", "Warn", "X"], "paramRef": {}});
        assert_eq!(
            messages(BINDING.validate(&json!({"spec": spec}))),
            [
                "spec.paramRef: Required value: one of name or selector must be specified",
                "spec.paramRef.parameterNotFoundAction: Required value",
                r#"spec.validationActions[1]: Duplicate value: "Deny""#,
                r#"spec.validationActions[3]: Unsupported value: "X": supported values: "Audit", "Deny", "Warn""#,
                r#"spec.validationActions: Invalid value: ["Deny","Deny","Warn","X"]: must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)"#,
            ]
        );
    }

    #[test]
    fn row_shows_policy_and_parameters() {
        let mut binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "paramRef": {"name": "x"}, "matchResources": {}}});
        BINDING.set_defaults(&mut binding);
        assert_eq!(binding["spec"]["matchResources"]["matchPolicy"], "Equivalent");
        assert_eq!(row(&COLUMNS, &binding), ["b", "p", "*/x", "<unknown>"]);
    }
}
