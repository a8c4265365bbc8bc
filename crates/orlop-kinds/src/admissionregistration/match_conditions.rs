//! Validation of the match conditions of webhooks and policies.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names,
};
use orlop_cel::{AdmissionVariables, ExpressionCompiler, ExpressionOrigin, ReturnType};
use serde_json::Value;

use crate::{
    accessors::{list, mark_repeated, text},
    validation,
};

/// Maximum number of conditions of one webhook or policy.
const CONDITIONS_MAX: usize = 64;

/// Validates `matchConditions` of a webhook or of a policy's spec. `stored` has the expressions that were accepted
/// before; `has_params` allows the variable `params`.
pub(crate) fn validate_match_conditions(
    object: &Value,
    path: &FieldPath,
    has_params: bool,
    stored: &[&str],
) -> Vec<FieldError> {
    let (conditions, path) = (list(object, "/matchConditions"), path.child("matchConditions"));
    let repeated = mark_repeated(conditions, |condition| text(condition, "/name"));
    let mut errors = Vec::new();
    if conditions.len() > CONDITIONS_MAX {
        errors.push(FieldError::too_many(&path, conditions.len(), CONDITIONS_MAX));
    }
    for ((index, condition), repeated) in conditions.iter().enumerate().zip(repeated) {
        let (path, name) = (path.index(index), text(condition, "/name"));
        let expression = text(condition, "/expression").trim();
        let at = path.child("expression");
        if expression.is_empty() {
            errors.push(FieldError::required(&at, ""));
        } else {
            errors.extend(validate_condition(expression, &at, has_params, stored));
        }
        let at = path.child("name");
        if name.is_empty() {
            errors.push(FieldError::required(&at, ""));
        } else {
            errors.extend(validation::invalid_for_each(&at, name, names::qualified_name(name)));
        }
        if repeated && !name.is_empty() {
            errors.push(FieldError::duplicate(&at, name));
        }
    }
    errors
}

fn validate_condition(
    expression: &str,
    path: &FieldPath,
    has_params: bool,
    stored: &[&str],
) -> Option<FieldError> {
    let origin = match stored.contains(&expression) {
        true => ExpressionOrigin::Stored,
        false => ExpressionOrigin::Written,
    };
    let variables = AdmissionVariables { params: has_params, authorizer: true, patch_types: false };
    let compiled = ExpressionCompiler::new(origin).compile(expression, variables, ReturnType::Bool);
    compiled.err().map(|detail| FieldError::invalid(path, expression, detail))
}

/// Returns the expressions of a webhook's or policy's match conditions.
pub(crate) fn expressions(object: &Value) -> impl Iterator<Item = &str> {
    list(object, "/matchConditions").iter().map(|condition| text(condition, "/expression"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::tests::messages;

    fn validate(conditions: &Value, has_params: bool) -> Vec<String> {
        let object = json!({"matchConditions": conditions});
        messages(validate_match_conditions(&object, &FieldPath::root("webhooks").index(0), has_params, &[]))
    }

    #[test]
    fn expressions_are_compiled() {
        let good = json!([
            {"name": "a", "expression": " request.operation == 'CREATE' "},
            {"name": "b", "expression": "authorizer.group('').resource('pods').check('get').allowed()"},
        ]);
        assert_eq!(validate(&good, false), Vec::<String>::new());
        let bad = json!([
            {"name": "a", "expression": "object.x +"},
            {"name": "a", "expression": "'text'"},
            {"name": "", "expression": " "},
            {"name": "/", "expression": "true"},
            {"name": "p", "expression": "params.x"},
        ]);
        let errors = validate(&bad, false);
        assert!(
            errors[0].starts_with(
                "webhooks[0].matchConditions[0].expression: Invalid value: \"object.x +\": compilation failed: ERROR: \
                 <input>:1:11: Syntax error: mismatched input '<EOF>' expecting"
            ),
            "{}",
            errors[0]
        );
        assert_eq!(
            errors[1],
            "webhooks[0].matchConditions[1].expression: Invalid value: \"'text'\": must evaluate to bool but got string"
        );
        assert_eq!(errors[2], "webhooks[0].matchConditions[1].name: Duplicate value: \"a\"");
        assert_eq!(errors[3], "webhooks[0].matchConditions[2].expression: Required value");
        assert_eq!(errors[4], "webhooks[0].matchConditions[2].name: Required value");
        assert!(errors[5].starts_with("webhooks[0].matchConditions[3].name: Invalid value: \"/\":"));
        assert!(errors.iter().any(|error| error.contains("undeclared reference to 'params'")));
        let many: Vec<Value> =
            (0..65).map(|index| json!({"name": format!("n{index}"), "expression": "true"})).collect();
        assert_eq!(
            validate(&many.into(), false),
            ["webhooks[0].matchConditions: Too many: 65: must have at most 64 items"]
        );
    }

    #[test]
    fn result_must_be_bool_even_with_params() {
        let dynamic = json!([{"name": "p", "expression": "params.enabled"}]);
        assert_eq!(
            validate(&dynamic, true),
            [
                "webhooks[0].matchConditions[0].expression: Invalid value: \"params.enabled\": must evaluate to bool \
              but got dyn"
            ]
        );
    }
}
