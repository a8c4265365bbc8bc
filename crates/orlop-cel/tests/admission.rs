//! Expressions of admission policies, and variables that are expressions.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
use orlop_cel::{
    Activation, AdmissionVariables, Budget, Composed, Composition, EXPRESSION_COST_MAX, EvalError,
    ExpressionCompiler, ExpressionOrigin, POLICY_COST_MAX, ReturnType,
};
use serde_json::json;

const ALL: AdmissionVariables = AdmissionVariables { params: true, authorizer: true, patch_types: true };

fn refused(expression: &str, declarations: AdmissionVariables, returns: ReturnType) -> String {
    ExpressionCompiler::new(ExpressionOrigin::Written).compile(expression, declarations, returns).unwrap_err()
}

#[test]
fn result_types_are_checked_with_kubernetes_texts() {
    let none = AdmissionVariables::default();
    let cases = [
        ("object.spec", ReturnType::Bool, "must evaluate to bool but got dyn"),
        ("[1]", ReturnType::String, "must evaluate to string but got list(int)"),
        ("1", ReturnType::StringOrNull, "must evaluate to one of [string null_type] but got int"),
        (
            "timestamp('2020-01-01T00:00:00Z')",
            ReturnType::Bool,
            "must evaluate to bool but got google.protobuf.Timestamp",
        ),
        ("{'a': 1}", ReturnType::Bool, "must evaluate to bool but got map(string, int)"),
    ];
    for (expression, returns, message) in cases {
        assert_eq!(refused(expression, none, returns), message, "{expression}");
    }
    assert_eq!(
        refused("Object.spec{}", ALL, ReturnType::ApplyConfiguration),
        "must evaluate to Object but got Object.spec"
    );
    assert_eq!(
        refused("[Object{}]", ALL, ReturnType::JsonPatch),
        "must evaluate to list(JSONPatch) but got list(Object)"
    );
    assert!(refused("params.x == 1", none, ReturnType::Bool).contains("undeclared reference to 'params'"));
    assert!(refused("Object{}", none, ReturnType::Any).contains("undeclared reference to 'Object'"));
    assert!(refused("request.nam == 'x'", none, ReturnType::Bool).contains("undefined field 'nam'"));
}

#[test]
fn allowed_expressions_compile() {
    let compiler = ExpressionCompiler::new(ExpressionOrigin::Written);
    for (expression, returns) in [
        ("request.namespace == 'a' && request.options.fieldManager == 'x'", ReturnType::Bool),
        ("namespaceObject.metadata.labels['a'] == 'b'", ReturnType::Bool),
        ("authorizer.requestResource.check('x').allowed()", ReturnType::Bool),
        ("params.a == params['b']", ReturnType::Bool),
        ("Object{spec: Object.spec{replicas: 1}}", ReturnType::ApplyConfiguration),
        (
            "[JSONPatch{op: 'add', path: '/a/' + jsonpatch.escapeKey('b/c'), value: Object.a{}}]",
            ReturnType::JsonPatch,
        ),
        ("null", ReturnType::StringOrNull),
    ] {
        compiler.compile(expression, ALL, returns).unwrap_or_else(|error| panic!("{expression}: {error}"));
    }
}

#[test]
fn variables_are_typed_and_declared_in_order() {
    let mut compiler = ExpressionCompiler::with_variables(ExpressionOrigin::Written);
    let error = compiler.compile("variables.later", ALL, ReturnType::Any).unwrap_err();
    assert_eq!(
        error,
        "compilation failed: ERROR: <input>:1:10: undefined field 'later'\n | variables.later\n | .........^"
    );
    compiler.compile_variable("later", "['a']", ALL).unwrap();
    let error = compiler.compile("variables . later + 1 == 2", ALL, ReturnType::Any).unwrap_err();
    assert!(
        error.contains("found no matching overload for '_+_' applied to '(list(string), int)'"),
        "{error}"
    );
    compiler.compile_variable("failed", "1 + ''", ALL).unwrap_err();
    compiler.compile("variables.failed == 1", ALL, ReturnType::Bool).unwrap();
}

/// Compiles variables, then an expression, and evaluates it on `{"n": 3}`.
fn evaluate(variables: &[(&str, &str)], expression: &str) -> (Result<bool, EvalError>, u64) {
    let mut compiler = ExpressionCompiler::with_variables(ExpressionOrigin::Stored);
    let mut composition = Composition::default();
    for (name, variable) in variables {
        composition.insert(*name, compiler.compile_variable(name, variable, ALL));
    }
    let program = compiler.compile(expression, ALL, ReturnType::Bool).unwrap();
    let object = json!({"n": 3});
    let activation = Activation::new().json("object", &object);
    let composed = Composed::new(&composition, EXPRESSION_COST_MAX);
    composed.limit(POLICY_COST_MAX);
    let result = program.evaluate_composed(&activation, &composed, &mut Budget::new(EXPRESSION_COST_MAX));
    (result.map(|value| value.as_bool().unwrap()), composed.cost())
}

#[test]
fn variables_are_evaluated_when_referenced_and_once() {
    let variables = [("n", "object.n"), ("twice", "variables.n + variables.n"), ("bad", "object.missing")];
    let (result, cost) = evaluate(&variables, "variables.twice == 6 && variables.twice == 6");
    assert_eq!(result, Ok(true));
    // object.n, then two references and an addition.
    assert_eq!(cost, 2 + 5);
    assert_eq!(evaluate(&variables, "true"), (Ok(true), 0));
    assert_eq!(
        evaluate(&variables, "variables.bad == 1").0,
        Err(EvalError::failed("composited variable \"bad\" fails to evaluate: no such key: missing"))
    );
    assert_eq!(evaluate(&variables, "variables.bad == 1 || true").0, Ok(true));
    assert_eq!(evaluate(&variables, "has(variables.n)").0, Ok(true));
    assert_eq!(evaluate(&variables, "variables.?n.orValue(0) == 3").0, Ok(true));
}

#[test]
fn variable_that_does_not_compile_fails_where_it_is_referenced() {
    let (result, _) = evaluate(&[("v", "nonsense")], "variables.v == 1");
    assert_eq!(
        result,
        Err(EvalError::failed(
            "composited variable \"v\" fails to compile: compilation failed: ERROR: <input>:1:1: undeclared reference \
             to 'nonsense' (in container '')\n | nonsense\n | ^"
        ))
    );
}

#[test]
fn variables_that_reference_each_other_too_deeply_fail() {
    let names: Vec<String> = (0..2_000).map(|index| format!("v{index}")).collect();
    let mut variables = vec![("v0", "1".to_owned())];
    for pair in names.windows(2) {
        variables.push((&pair[1], format!("(variables.{})", pair[0])));
    }
    let variables: Vec<(&str, &str)> = variables.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let (result, _) = evaluate(&variables, "variables.v1999 == 1");
    assert!(result.unwrap_err().to_string().ends_with("max recursion depth exceeded"));
    assert_eq!(evaluate(&variables[..50], "variables.v49 == 1").0, Ok(true));
}

#[test]
fn variables_share_the_budget_of_the_policy() {
    let burn = "[0,1,2,3,4,5,6,7,8,9].all(a, [0,1,2,3,4,5,6,7,8,9].all(b, [0,1,2,3,4,5,6,7,8,9].all(c, \
                [0,1,2,3,4,5,6,7,8,9].all(d, [0,1,2,3,4,5,6,7,8,9].all(e, a + b + c + d + e >= 0)))))";
    let names: Vec<String> = (0..20).map(|index| format!("v{index}")).collect();
    let variables: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), burn)).collect();
    let expression: Vec<String> = names.iter().map(|name| format!("variables.{name}")).collect();
    let (result, cost) = evaluate(&variables, &expression.join(" || "));
    assert_eq!(result, Err(EvalError::CostLimitExceeded));
    assert!(cost > POLICY_COST_MAX && cost < POLICY_COST_MAX + EXPRESSION_COST_MAX, "{cost}");
}
