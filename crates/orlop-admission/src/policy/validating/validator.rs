//! The compiled rules of a ValidatingAdmissionPolicy, and the decisions they lead to.

use orlop_api::status;
use orlop_cel::{AdmissionVariables, POLICY_COST_MAX, ReturnType, Value as CelValue};
use serde_json::Value;

use super::super::{
    definition::{FailurePolicy, items, present, text},
    expression::{Evaluation, Expression, Expressions, OUT_OF_BUDGET, Stop},
    metrics::PolicyErrorType,
};
use crate::matching::Variables;

/// Maximum length of an evaluated message.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;
/// Cost from which an evaluation takes long.
const EXPENSIVE: u64 = 200_000;

/// The compiled rules of a policy.
#[derive(Debug)]
pub(super) struct Validator {
    expressions: Expressions,
    validations: Vec<Validation>,
    annotations: Vec<(String, Expression)>,
}

#[derive(Debug)]
struct Validation {
    expression: Expression,
    message_expression: Option<Expression>,
    message: String,
    reason: Reason,
}

/// Reason of a denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Unauthorized,
    Forbidden,
    Invalid,
    RequestEntityTooLarge,
}

impl Reason {
    fn read(text: &str) -> Self {
        match text {
            "Unauthorized" => Self::Unauthorized,
            "Forbidden" => Self::Forbidden,
            "RequestEntityTooLarge" => Self::RequestEntityTooLarge,
            _ => Self::Invalid,
        }
    }

    /// Returns the code and reason of the status.
    pub(super) fn status(self) -> (u16, status::Reason) {
        match self {
            Self::Unauthorized => (401, status::Reason::Unauthorized),
            Self::Forbidden => (403, status::Reason::Forbidden),
            Self::Invalid => (422, status::Reason::Invalid),
            Self::RequestEntityTooLarge => (413, status::Reason::RequestEntityTooLarge),
        }
    }
}

/// The decision of one validation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) denied: Option<Denied>,
    pub(super) error: PolicyErrorType,
}

/// A validation that is not met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Denied {
    pub(super) message: String,
    pub(super) reason: Reason,
}

impl Decision {
    /// The decision of a validation that could not be evaluated.
    fn failed(message: String, failure_policy: FailurePolicy) -> Self {
        let error = PolicyErrorType::of(&message);
        let denied = match failure_policy {
            FailurePolicy::Ignore => None,
            FailurePolicy::Fail => Some(Denied { message, reason: Reason::Invalid }),
        };
        Self { denied, error }
    }
}

/// The result of an audit annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Annotation {
    Publish {
        key: String,
        value: String,
    },
    Exclude,
    /// The request is denied.
    Failed(String),
}

/// The results of a policy.
#[derive(Debug)]
pub(super) struct Outcome {
    /// By validation.
    pub(super) decisions: Vec<Decision>,
    pub(super) annotations: Vec<Annotation>,
    /// True if the evaluation took long.
    pub(super) is_expensive: bool,
}

impl Outcome {
    /// The outcome of a policy that could not be evaluated.
    pub(super) fn failed(message: String, failure_policy: FailurePolicy) -> Self {
        let decisions = vec![Decision::failed(message, failure_policy)];
        Self { decisions, annotations: Vec::new(), is_expensive: false }
    }

    /// The outcome of a policy that cost too much.
    pub(super) fn out_of_budget(failure_policy: FailurePolicy) -> Self {
        Self { is_expensive: true, ..Self::failed(OUT_OF_BUDGET.to_owned(), failure_policy) }
    }
}

impl Validator {
    /// Compiles a policy.
    pub(super) fn compile(policy: &Value) -> Self {
        let spec = &policy["spec"];
        let expressions = Expressions::new(spec, present(spec, "paramKind").is_some());
        let declared = expressions.declared;
        let validation = |validation: &Value| {
            let message_expression = text(validation, "messageExpression");
            let without_authorizer = AdmissionVariables { authorizer: false, ..declared };
            Validation {
                expression: expressions.compile(text(validation, "expression"), declared, ReturnType::Bool),
                message_expression: (!message_expression.is_empty())
                    .then(|| expressions.compile(message_expression, without_authorizer, ReturnType::String)),
                message: text(validation, "message").trim().to_owned(),
                reason: Reason::read(text(validation, "reason")),
            }
        };
        let annotation = |annotation: &Value| {
            let value = text(annotation, "valueExpression");
            (
                text(annotation, "key").to_owned(),
                expressions.compile(value, declared, ReturnType::StringOrNull),
            )
        };
        Self {
            validations: items(spec, "validations").iter().map(validation).collect(),
            annotations: items(spec, "auditAnnotations").iter().map(annotation).collect(),
            expressions,
        }
    }

    /// Evaluates the policy. Validations and messages share one budget, audit annotations have another.
    pub(super) fn validate(
        &self,
        variables: &Variables<'_>,
        failure_policy: FailurePolicy,
    ) -> Result<Outcome, Stop> {
        let activation = variables.activation();
        let composition = &self.expressions.composition;
        let mut evaluation = Evaluation::new(&activation, composition, POLICY_COST_MAX);
        let mut results = Vec::with_capacity(self.validations.len());
        for validation in &self.validations {
            results.push(evaluation.evaluate(&validation.expression)?);
        }
        let mut remaining = evaluation.remaining();
        let has_messages = self.validations.iter().any(|validation| validation.message_expression.is_some());
        let messages = match has_messages {
            false => Ok(Vec::new()),
            true => {
                let mut evaluation = Evaluation::new(&activation, composition, remaining);
                let messages = self.messages(&mut evaluation);
                remaining = evaluation.remaining();
                messages
            }
        };
        let messages = match messages {
            Err(Stop::Interrupted) => return Err(Stop::Interrupted),
            messages => messages,
        };
        let decide = |(index, result)| self.decide(index, result, &messages, failure_policy);
        let decisions = results.into_iter().enumerate().map(decide).collect();
        let mut evaluation = Evaluation::new(&activation, composition, POLICY_COST_MAX);
        let mut annotations = Vec::with_capacity(self.annotations.len());
        for (key, expression) in &self.annotations {
            annotations.push(annotate(key, expression, evaluation.evaluate(expression)?, failure_policy));
        }
        let is_expensive = remaining.min(evaluation.remaining()) < POLICY_COST_MAX - EXPENSIVE;
        Ok(Outcome { decisions, annotations, is_expensive })
    }

    /// Evaluates the message expressions. Those that fail have no message.
    fn messages<'a>(&'a self, evaluation: &mut Evaluation<'a>) -> Result<Vec<Option<String>>, Stop> {
        let message = |validation: &'a Validation| {
            let Some(expression) = &validation.message_expression else { return Ok(None) };
            let value = evaluation.evaluate(expression)?;
            Ok(value.ok().and_then(|value| value.as_str().map(|text| text.trim().to_owned())))
        };
        self.validations.iter().map(message).collect()
    }

    fn decide(
        &self,
        index: usize,
        result: Result<CelValue<'_>, String>,
        messages: &Result<Vec<Option<String>>, Stop>,
        failure_policy: FailurePolicy,
    ) -> Decision {
        let (value, messages) = match (result, messages) {
            (Err(message), _) => return Decision::failed(message, failure_policy),
            (Ok(_), Err(_)) => {
                let message = format!("failed messageExpression: {OUT_OF_BUDGET}");
                return Decision::failed(message, failure_policy);
            }
            (Ok(value), Ok(messages)) => (value, messages),
        };
        let Some(validation) = self.validations.get(index).filter(|_| value.as_bool() != Some(true)) else {
            return Decision { denied: None, error: PolicyErrorType::NoError };
        };
        let evaluated = messages.get(index).and_then(Option::as_deref).filter(|message| {
            message.len() <= MESSAGE_BYTES_MAX && !message.is_empty() && !message.contains('\n')
        });
        let message = match (evaluated, validation.message.as_str()) {
            (Some(message), _) => message.to_owned(),
            (None, "") => format!("failed expression: {}", validation.expression.text.trim()),
            (None, message) => message.to_owned(),
        };
        let denied = Some(Denied { message, reason: validation.reason });
        Decision { denied, error: PolicyErrorType::NoError }
    }
}

fn annotate(
    key: &str,
    expression: &Expression,
    result: Result<CelValue<'_>, String>,
    failure_policy: FailurePolicy,
) -> Annotation {
    match result {
        Err(_) if failure_policy == FailurePolicy::Ignore => Annotation::Exclude,
        Err(message) => Annotation::Failed(message),
        Ok(CelValue::Null) => Annotation::Exclude,
        Ok(CelValue::String(value)) => match value.trim() {
            "" => Annotation::Exclude,
            value => Annotation::Publish { key: key.to_owned(), value: value.to_owned() },
        },
        Ok(other) => Annotation::Failed(format!(
            "valueExpression '{}' resulted in unsupported return type: {}. Return type must be either string or null.",
            expression.text,
            other.type_of().runtime_name()
        )),
    }
}
