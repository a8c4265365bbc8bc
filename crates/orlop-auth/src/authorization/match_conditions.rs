//! Match conditions of webhooks: CEL expressions over the SubjectAccessReview that would be sent.

use std::sync::LazyLock;

use orlop_api::field_error::{FieldError, FieldPath, aggregate};
use orlop_cel::{Activation, Budget, Env, Program, Schema, SchemaSpec, Type};
use serde_json::{Value, json};

/// Minor version of Kubernetes whose CEL libraries expressions may use.
const MINOR: u32 = 37;
/// Maximum number of conditions of one webhook.
const CONDITIONS_MAX: usize = 64;
/// Cost limit of one expression.
const COST_MAX: u64 = 1_000_000;

static ENVIRONMENT: LazyLock<Env> = LazyLock::new(|| {
    let environment = Env::kubernetes(MINOR);
    match Schema::new("kubernetes.SubjectAccessReviewSpec", &review(), false) {
        Some(schema) => environment.schema("request", &schema).build(),
        None => environment.build(),
    }
});

/// Returns the type of the variable `request`.
fn review() -> SchemaSpec {
    let kind = |kind: &str| SchemaSpec { kind: kind.to_owned(), ..SchemaSpec::default() };
    let text = || kind("string");
    let list = |item: SchemaSpec| SchemaSpec { items: Some(Box::new(item)), ..kind("array") };
    // Lenient, so that `namespace`, which is a reserved word, can be written as it is.
    let object = |fields: &[(&str, SchemaSpec)]| {
        let properties = fields.iter().map(|(name, field)| ((*name).to_owned(), field.clone())).collect();
        SchemaSpec { properties, lenient: true, ..kind("object") }
    };
    let requirement = object(&[("key", text()), ("operator", text()), ("values", list(text()))]);
    let selector = object(&[("rawSelector", text()), ("requirements", list(requirement))]);
    let resource = object(&[
        ("namespace", text()),
        ("verb", text()),
        ("group", text()),
        ("version", text()),
        ("resource", text()),
        ("subresource", text()),
        ("name", text()),
        ("fieldSelector", selector.clone()),
        ("labelSelector", selector),
    ]);
    let extra = SchemaSpec { additional_properties: Some(Box::new(list(text()))), ..kind("object") };
    object(&[
        ("resourceAttributes", resource),
        ("nonResourceAttributes", object(&[("path", text()), ("verb", text())])),
        ("user", text()),
        ("groups", list(text())),
        ("extra", extra),
        ("uid", text()),
    ])
}

/// The conditions of a webhook.
#[derive(Debug, Default)]
pub struct MatchConditions(Vec<(String, Program)>);

/// The result of evaluating conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// All are true: the webhook is asked.
    All,
    /// One is false: the webhook is skipped.
    Excluded,
    /// None is false, and some could not be evaluated.
    Failed(String),
}

impl MatchConditions {
    /// Compiles conditions. `path` is that of their list.
    pub fn compile(expressions: &[String], path: &FieldPath) -> Result<Self, Vec<FieldError>> {
        if expressions.len() > CONDITIONS_MAX {
            return Err(vec![FieldError::too_many(path, expressions.len(), CONDITIONS_MAX)]);
        }
        let mut errors = Vec::new();
        let mut compiled = Vec::new();
        for (index, expression) in expressions.iter().enumerate() {
            let path = path.index(index).child("expression");
            if expression.trim().is_empty() {
                errors.push(FieldError::required(&path, ""));
            } else if expressions[..index].contains(expression) {
                errors.push(FieldError::duplicate(&path, expression.as_str()));
            } else {
                match ENVIRONMENT.compile(expression) {
                    Ok(program) if *program.result_type() == Type::Bool => {
                        compiled.push((expression.clone(), program));
                    }
                    Ok(program) => {
                        let detail = format!("must evaluate to bool but got {}", program.result_type());
                        errors.push(FieldError::invalid(&path, expression.as_str(), detail));
                    }
                    Err(error) => {
                        let detail = format!("compilation failed: {error}");
                        errors.push(FieldError::invalid(&path, expression.as_str(), detail));
                    }
                }
            }
        }
        if errors.is_empty() { Ok(Self(compiled)) } else { Err(errors) }
    }

    /// Evaluates the conditions on the spec of a review.
    pub fn evaluate(&self, spec: &Value) -> Match {
        if self.0.is_empty() {
            return Match::All;
        }
        let request = with_empty_fields(spec);
        let mut errors = Vec::new();
        for (expression, program) in &self.0 {
            let activation = Activation::new().json("request", &request);
            let mut budget = Budget::new(COST_MAX);
            match program.evaluate(&activation, &mut budget).map(|value| value.as_bool()) {
                Ok(Some(true)) => {}
                Ok(Some(false)) => return Match::Excluded,
                Ok(None) => errors.push(format!(
                    "cel evaluation error: expression '{expression}' eval result type should be bool"
                )),
                Err(error) => errors.push(format!(
                    "cel evaluation error: expression '{expression}' resulted in error: {error}"
                )),
            }
        }
        if errors.is_empty() { Match::All } else { Match::Failed(aggregate(&errors)) }
    }
}

/// Adds the text fields that a review leaves out: in CEL they are there, and empty.
fn with_empty_fields(spec: &Value) -> Value {
    let mut request = spec.clone();
    let fill = |value: &mut Value, fields: &[(&str, Value)]| {
        for (field, empty) in fields {
            if value.get(field).is_none() {
                value[*field] = empty.clone();
            }
        }
    };
    fill(
        &mut request,
        &[("user", "".into()), ("uid", "".into()), ("groups", json!([])), ("extra", json!({}))],
    );
    if let Some(resource) = request.get_mut("resourceAttributes") {
        let fields = ["namespace", "verb", "group", "version", "resource", "subresource", "name"];
        fill(resource, &fields.map(|field| (field, "".into())));
    }
    if let Some(path) = request.get_mut("nonResourceAttributes") {
        fill(path, &["path", "verb"].map(|field| (field, "".into())));
    }
    request
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn compile(expressions: &[&str]) -> Result<MatchConditions, Vec<String>> {
        let expressions: Vec<String> = expressions.iter().map(|text| (*text).to_owned()).collect();
        let path = FieldPath::root("matchConditions");
        MatchConditions::compile(&expressions, &path)
            .map_err(|errors| errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn one_false_condition_excludes_and_errors_count_only_without_one() {
        let pods = json!({"user": "ann", "groups": ["dev"], "resourceAttributes": {"verb": "get", "resource": "pods",
            "fieldSelector": {"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n"]}]}}});
        let path = json!({"user": "bob", "nonResourceAttributes": {"path": "/x", "verb": "get"}});
        let of_dev = compile(&["'dev' in request.groups", "has(request.resourceAttributes)"]).unwrap();
        assert_eq!(of_dev.evaluate(&pods), Match::All);
        assert_eq!(of_dev.evaluate(&path), Match::Excluded);
        let failing =
            compile(&["request.resourceAttributes.namespace == ''", "request.user == 'ann'"]).unwrap();
        assert_eq!(failing.evaluate(&pods), Match::All, "an empty namespace is there");
        assert_eq!(failing.evaluate(&path), Match::Excluded, "the error does not count: one is false");
        let failing = compile(&["request.resourceAttributes.namespace == ''"]).unwrap();
        assert!(
            matches!(failing.evaluate(&path), Match::Failed(error) if error.contains("resulted in error"))
        );
        let selected = compile(&[
            "request.resourceAttributes.fieldSelector.requirements.exists(r, r.key == 'spec.nodeName')",
        ]);
        assert_eq!(selected.unwrap().evaluate(&pods), Match::All);
        assert_eq!(MatchConditions::default().evaluate(&path), Match::All);
    }

    #[test]
    fn bad_expressions_are_reported() {
        let errors = compile(&["", "request.user", "true", "true", "request.nope == 'x'"]).unwrap_err();
        assert_eq!(errors[0], "matchConditions[0].expression: Required value");
        assert_eq!(
            errors[1],
            "matchConditions[1].expression: Invalid value: \"request.user\": must evaluate to bool but got string"
        );
        assert_eq!(errors[2], "matchConditions[3].expression: Duplicate value: \"true\"");
        assert!(
            errors[3].contains("compilation failed: ERROR: <input>:1:8: undefined field 'nope'"),
            "{}",
            errors[3]
        );
        let many: Vec<String> = (0..65).map(|number| format!("{number} > 0")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(
            compile(&many).unwrap_err(),
            ["matchConditions: Too many: 65: must have at most 64 items"]
        );
    }
}
