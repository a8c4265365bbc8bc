//! Match conditions: CEL expressions that must all be true.

use std::sync::Arc;

use orlop_api::field_error::aggregate;
use orlop_auth::UnionAuthorizer;
use orlop_cel::{
    Activation, AdmissionVariables, Budget, EXPRESSION_COST_MAX, EvalError, ExpressionCompiler,
    ExpressionOrigin, MATCH_CONDITIONS_COST_MAX, Program, ResourceAttributes, ReturnType, Value as CelValue,
    authorizer_value, request_resource_value,
};
use serde_json::Value;

use super::AuthorizerChecks;

/// Error of expressions that together cost too much.
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// Variables of one request's expressions. Absent ones are null.
#[derive(Clone, Copy, Debug)]
pub struct Variables<'a> {
    /// `object`
    pub object: Option<&'a Value>,
    /// `oldObject`
    pub old: Option<&'a Value>,
    /// `request`
    pub request: &'a Value,
    /// `namespaceObject`
    pub namespace: Option<&'a Value>,
    /// `params`
    pub params: Option<&'a Value>,
    /// `authorizer`
    pub authorizer: &'a Arc<AuthorizerChecks>,
    /// `authorizer.requestResource`
    pub resource: &'a ResourceAttributes,
}

impl<'a> Variables<'a> {
    /// Binds the variables.
    pub fn activation(&self) -> Activation<'a> {
        let authorizer: Arc<dyn orlop_cel::Authorizer> = self.authorizer.clone();
        let mut activation = Activation::new()
            .json("request", self.request)
            .value("authorizer", authorizer_value(authorizer.clone()))
            .value("authorizer.requestResource", request_resource_value(authorizer, self.resource.clone()));
        for (name, value) in [
            ("object", self.object),
            ("oldObject", self.old),
            ("namespaceObject", self.namespace),
            ("params", self.params),
        ] {
            activation = match value {
                Some(value) => activation.json(name, value),
                None => activation.value(name, CelValue::Null),
            };
        }
        activation
    }
}

/// The compiled match conditions of a webhook or policy.
#[derive(Clone, Debug, Default)]
pub struct MatchConditions(Vec<Condition>);

#[derive(Clone, Debug)]
struct Condition {
    name: String,
    expression: String,
    /// An expression that was stored by another program may not compile.
    program: Result<Program, String>,
}

/// The result of evaluating match conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConditionsOutcome {
    /// All are true.
    Match,
    /// The condition of this name is false, whatever the others are.
    Excluded(String),
    /// None is false, and some could not be evaluated. The failure policy decides.
    Failed {
        /// The errors, as one.
        error: String,
        /// Number of conditions that could not be evaluated.
        count: usize,
    },
}

impl MatchConditions {
    /// Compiles the conditions of a webhook or of a policy's spec.
    pub fn compile(object: &Value, has_params: bool) -> Self {
        let conditions = object.get("matchConditions").and_then(Value::as_array).into_iter().flatten();
        let compiler = ExpressionCompiler::new(ExpressionOrigin::Stored);
        let variables = AdmissionVariables { params: has_params, authorizer: true, patch_types: false };
        let compile = |condition: &Value| {
            let text =
                |field: &str| condition.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
            let expression = text("expression");
            let program = compiler.compile(&expression, variables, ReturnType::Bool);
            Condition { name: text("name"), expression, program }
        };
        Self(conditions.map(compile).collect())
    }

    /// Returns true if there are no conditions: then every request matches.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Evaluates the conditions.
    pub async fn evaluate(
        &self,
        variables: &Variables<'_>,
        authorizer: &UnionAuthorizer,
    ) -> ConditionsOutcome {
        loop {
            let outcome = self.evaluate_once(variables);
            if !variables.authorizer.resolve(authorizer).await {
                return outcome;
            }
        }
    }

    fn evaluate_once(&self, variables: &Variables<'_>) -> ConditionsOutcome {
        let mut errors = Vec::new();
        let mut remaining = MATCH_CONDITIONS_COST_MAX;
        let mut excluded = None;
        for Condition { name, expression, program } in &self.0 {
            let program = match program {
                Ok(program) => program,
                Err(why) => {
                    errors.push(format!("compilation error: {why}"));
                    continue;
                }
            };
            let mut budget = Budget::new(EXPRESSION_COST_MAX);
            let activation = variables.activation();
            let value = program.evaluate(&activation, &mut budget).map(|value| value.as_bool());
            match remaining.checked_sub(budget.used()) {
                Some(rest) => remaining = rest,
                None => return ConditionsOutcome::Failed { error: OUT_OF_BUDGET.to_owned(), count: 0 },
            }
            match value {
                Ok(Some(true)) => {}
                // The others are evaluated all the same: they may run out of budget.
                Ok(Some(false)) => drop(excluded.get_or_insert(name)),
                Ok(None) => errors.push(failed(expression, &EvalError::failed("no such overload"))),
                // Another evaluation follows.
                Err(error @ EvalError::Interrupted) => {
                    return ConditionsOutcome::Failed { error: error.to_string(), count: 1 };
                }
                Err(error) => errors.push(failed(expression, &error)),
            }
        }
        match (excluded, errors.is_empty()) {
            (Some(name), _) => ConditionsOutcome::Excluded(name.clone()),
            (None, true) => ConditionsOutcome::Match,
            (None, false) => ConditionsOutcome::Failed { error: aggregate(&errors), count: errors.len() },
        }
    }
}

fn failed(expression: &str, error: &EvalError) -> String {
    format!("expression '{expression}' resulted in error: {error}")
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use async_trait::async_trait;
    use orlop_api::user::UserInfo;
    use orlop_auth::{
        Authorizer, Decision,
        authorizer::{Authorizing, Rules, decided},
        request::Attributes,
    };
    use serde_json::json;

    use super::*;

    /// Allows `get` of pods, and what the service account `robot` does.
    #[derive(Debug)]
    struct PodReader;

    #[async_trait]
    impl Authorizer for PodReader {
        fn authorize<'a>(&'a self, attributes: &'a Attributes) -> Authorizing<'a> {
            let is_read = attributes.verb.as_str() == "get" && attributes.resource == "pods";
            let decision = match is_read || attributes.user.name.ends_with(":robot") {
                true => Decision::Allow(Cow::Borrowed("")),
                false => Decision::NoOpinion(Cow::Borrowed("no")),
            };
            decided(decision)
        }

        async fn rules(&self, _user: &UserInfo, _namespace: &str) -> Rules {
            Rules::default()
        }
    }

    async fn evaluate(expressions: &[&str]) -> ConditionsOutcome {
        let conditions: Vec<Value> = expressions
            .iter()
            .enumerate()
            .map(|(index, expression)| json!({"name": format!("c{index}"), "expression": expression}))
            .collect();
        let conditions = MatchConditions::compile(&json!({"matchConditions": conditions}), false);
        let object = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"items": [1, 2, 3]}});
        let request = json!({"operation": "CREATE", "userInfo": {"username": "ann"}});
        let checks = Arc::new(AuthorizerChecks::new(Arc::new(UserInfo::authenticated("ann", []))));
        let resource = ResourceAttributes {
            resource: "pods".into(),
            namespace: "a".into(),
            ..ResourceAttributes::default()
        };
        let variables = Variables {
            object: Some(&object),
            old: None,
            request: &request,
            namespace: None,
            params: None,
            authorizer: &checks,
            resource: &resource,
        };
        conditions.evaluate(&variables, &UnionAuthorizer::new(vec![Arc::new(PodReader)])).await
    }

    #[tokio::test]
    async fn one_false_condition_excludes_even_beside_errors() {
        use ConditionsOutcome::{Excluded, Failed, Match};
        assert_eq!(evaluate(&[]).await, Match);
        assert_eq!(evaluate(&["oldObject == null", "object.metadata.labels.app == 'web'"]).await, Match);
        assert_eq!(evaluate(&["object.x == 1", "false"]).await, Excluded("c1".into()));
        let error = "expression 'object.x == 1' resulted in error: no such key: x".to_owned();
        assert_eq!(evaluate(&["true", "object.x == 1"]).await, Failed { error: error.clone(), count: 1 });
        let both = format!("[{error}, expression 'object.y' resulted in error: no such key: y]");
        let error = both.replace("object.y'", "object.y == 1'");
        assert_eq!(evaluate(&["object.x == 1", "object.y == 1"]).await, Failed { error, count: 2 });
    }

    #[tokio::test]
    async fn authorizer_is_asked_as_often_as_needed() {
        use ConditionsOutcome::{Excluded, Match};
        let allowed = "authorizer.group('').resource('pods').namespace('a').check('get').allowed()";
        assert_eq!(evaluate(&[allowed]).await, Match);
        assert_eq!(evaluate(&["authorizer.requestResource.check('get').allowed()"]).await, Match);
        assert_eq!(evaluate(&["authorizer.path('/x').check('get').allowed()"]).await, Excluded("c0".into()));
        // The second check is known only after the first one. A third would exceed the cost limit.
        let chained = "authorizer.requestResource.check('get').allowed() && \
            authorizer.requestResource.check('delete').reason() == 'no'";
        let account = "authorizer.serviceAccount('a', 'robot').path('/x').check('get').allowed()";
        assert_eq!(evaluate(&[chained, account]).await, Match);
    }

    #[tokio::test]
    async fn costly_conditions_run_out_of_budget() {
        let costly = "object.spec.items.map(a, object.spec.items.map(b, object.spec.items.map(c, \
            object.spec.items.map(d, object.spec.items.map(e, object.spec.items.map(f, \
            object.spec.items.map(g, object.spec.items.map(h, object.spec.items.map(i, \
            object.spec.items.map(j, object.spec.items.map(k, object.spec.items.map(l, \
            object.spec.items.map(m, [a, b, c, d, e, f, g, h, i, j, k, l, m]))))))))))))) == []";
        let ConditionsOutcome::Failed { error, .. } = evaluate(&[costly]).await else {
            unreachable!("it costs more than 1,000,000")
        };
        assert!(
            error.ends_with("resulted in error: operation cancelled: actual cost limit exceeded"),
            "{error}"
        );
        assert_eq!(
            evaluate(&[costly, costly, costly]).await,
            ConditionsOutcome::Failed { error: OUT_OF_BUDGET.to_owned(), count: 0 }
        );
    }
}
