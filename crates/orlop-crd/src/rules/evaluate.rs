//! Evaluation of rules on objects.

use super::compile::Compiled;
use super::correlation::{Correlation, Unchanged};
use super::{Node, RULE_COST_MAX, Rules};
use orlop_api::field_error::{FieldError, FieldPath};
use orlop_api::go_text::quote;
use orlop_api::schema::{CorrelatedItems, Schema};
use orlop_cel::{Activation, Budget, EvalError, Program};
use serde_json::Value;

/// Limit on the length of a `messageExpression` result.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// Result of validating an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ValidationResult {
    pub errors: Vec<FieldError>,
    /// Failures of unchanged values (ratcheting).
    pub warnings: Vec<String>,
}

impl Rules {
    /// Like [`Rules::validate`], with a shared cost budget.
    pub(crate) fn evaluate(
        &self,
        schema: &Schema,
        object: &Value,
        old: Option<&Value>,
        budget: &mut u64,
    ) -> ValidationResult {
        let mut evaluation = Evaluation {
            path: Vec::new(),
            budget: *budget,
            unchanged: Unchanged::default(),
            result: ValidationResult::default(),
        };
        if let Some(root) = &self.root {
            // An exhausted budget is already among the errors.
            let _ = evaluation.node(root, object, non_null(old), Correlation::root(object, old, schema));
        }
        *budget = evaluation.budget;
        evaluation.result
    }
}

/// The cost budget is exhausted; no further rule is evaluated.
struct Stopped;

#[derive(Clone, Copy)]
enum Segment<'a> {
    Child(&'a str),
    Key(&'a str),
    Index(usize),
}

struct Evaluation<'a> {
    path: Vec<Segment<'a>>,
    budget: u64,
    unchanged: Unchanged,
    result: ValidationResult,
}

fn non_null(old: Option<&Value>) -> Option<&Value> {
    old.filter(|old| !old.is_null())
}

impl<'a> Evaluation<'a> {
    /// Formats the current path, only for errors.
    fn path(&self) -> FieldPath {
        self.path.iter().fold(FieldPath::nil(), |path, segment| match segment {
            Segment::Child(name) => path.child(name),
            Segment::Key(key) => path.key(key),
            Segment::Index(index) => path.index(*index),
        })
    }

    fn below(
        &mut self,
        segment: Segment<'a>,
        node: &'a Node,
        value: &'a Value,
        old: Option<&'a Value>,
        correlation: Correlation<'a>,
    ) -> Result<(), Stopped> {
        self.path.push(segment);
        let outcome = self.node(node, value, non_null(old), correlation);
        self.path.pop();
        outcome
    }

    fn node(
        &mut self,
        node: &'a Node,
        value: &'a Value,
        old: Option<&'a Value>,
        correlation: Correlation<'a>,
    ) -> Result<(), Stopped> {
        // Rules on nullable values belong to their parents.
        if value.is_null() {
            return Ok(());
        }
        self.rules(node, value, old, correlation)?;
        match value {
            Value::Object(map) => {
                let old = old.and_then(Value::as_object);
                if let Some(values) = &node.values {
                    for (key, value) in map {
                        let old = old.and_then(|old| old.get(key));
                        self.below(Segment::Key(key), values, value, old, correlation.key(key))?;
                    }
                }
                for (name, inner) in &node.properties {
                    let Some(value) = map.get(&**name) else { continue };
                    let old = old.and_then(|old| old.get(&**name));
                    self.below(Segment::Child(name), inner, value, old, correlation.key(name))?;
                }
            }
            Value::Array(items) => {
                let Some(inner) = &node.items else { return Ok(()) };
                let old = CorrelatedItems::by_keys(old, &node.keys);
                for (index, value) in items.iter().enumerate() {
                    let old = old.get(value);
                    self.below(Segment::Index(index), inner, value, old, correlation.item(value, old))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn rules(
        &mut self,
        node: &'a Node,
        value: &'a Value,
        old: Option<&'a Value>,
        correlation: Correlation<'a>,
    ) -> Result<(), Stopped> {
        if node.rules.is_empty() {
            return Ok(());
        }
        if self.budget == 0 {
            return Err(self.stop(node, OUT_OF_BUDGET.to_owned()));
        }
        for rule in &node.rules {
            let program = match &rule.program {
                Ok(Some(program)) => program,
                Ok(None) => continue,
                Err(problem) => {
                    self.invalid(node, format!("rule compile error: {problem}"));
                    continue;
                }
            };
            if rule.uses_old_self && old.is_none() && !rule.optional_old_self {
                continue;
            }
            let activation = Activation::new().json("self", value);
            let activation = match old {
                _ if !rule.uses_old_self && rule.message_expression.is_empty() => activation,
                old if rule.optional_old_self => activation.optional_json("oldSelf", old),
                Some(old) => activation.json("oldSelf", old),
                None => activation,
            };
            if !self.evaluate(node, rule, program, &activation)? {
                self.failed(node, rule, value, &activation, correlation)?;
            }
        }
        Ok(())
    }

    /// Evaluates a rule. An evaluation error is reported, and the rule counts as passed.
    fn evaluate(
        &mut self,
        node: &Node,
        rule: &Compiled,
        program: &'a Program,
        activation: &Activation<'a>,
    ) -> Result<bool, Stopped> {
        let mut budget = Budget::new(RULE_COST_MAX);
        let outcome = program.evaluate(activation, &mut budget);
        let Some(left) = self.budget.checked_sub(budget.used()) else {
            return Err(self.stop(node, OUT_OF_BUDGET.to_owned()));
        };
        self.budget = left;
        let error = match outcome {
            Ok(value) => return Ok(value.as_bool() == Some(true)),
            Err(error) => error,
        };
        let name = rule.name();
        match &error {
            EvalError::CostLimitExceeded => {
                let detail = format!(
                    "'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {name}"
                );
                return Err(self.stop(node, detail));
            }
            EvalError::Failed(problem) if problem.starts_with("no such overload") => self.invalid(
                node,
                format!(
                    "'{error}': call arguments did not match a supported operator, function or macro signature for rule: {name}"
                ),
            ),
            _ => self.invalid(node, format!("{error} evaluating rule: {name}")),
        }
        Ok(true)
    }

    /// Reports a failed rule.
    fn failed(
        &mut self,
        node: &Node,
        rule: &'a Compiled,
        value: &Value,
        activation: &Activation<'a>,
        correlation: Correlation<'a>,
    ) -> Result<(), Stopped> {
        let mut path = self.path();
        if !rule.field_path.is_empty() {
            path = path.child(&rule.field_path);
        }
        let message = match &rule.message_program {
            Ok(Some(program)) => match self.message(rule, program, activation) {
                Ok(message) => message,
                Err(problem) => {
                    self.report(rule, FieldError::invalid(&path, &*node.kind, problem), correlation);
                    return Err(Stopped);
                }
            },
            _ => None,
        };
        let message = message.unwrap_or_else(|| rule.failure());
        let error = match &*rule.reason {
            "FieldValueForbidden" => FieldError::forbidden(&path, message),
            "FieldValueRequired" => FieldError::required(&path, message),
            "FieldValueDuplicate" => FieldError::duplicate(&path, value.clone()),
            _ => FieldError::invalid(&path, value.clone(), message),
        };
        let whole = matches!(&*node.kind, "object" | "array");
        self.report(rule, if whole { error.without_value() } else { error }, correlation);
        Ok(())
    }

    /// Evaluates `messageExpression`; `None` if its result is unusable, an error if the budget is exhausted.
    fn message(
        &mut self,
        rule: &Compiled,
        program: &'a Program,
        activation: &Activation<'a>,
    ) -> Result<Option<String>, String> {
        let mut budget = Budget::new(RULE_COST_MAX);
        let outcome = program.evaluate(activation, &mut budget);
        let Some(left) = self.budget.checked_sub(budget.used()) else {
            return Err("messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run".to_owned());
        };
        if outcome == Err(EvalError::CostLimitExceeded) {
            let expression = quote(&rule.message_expression);
            return Err(format!(
                "no further validation rules will be run due to call cost exceeds limit for messageExpression: {expression}"
            ));
        }
        self.budget = left;
        let message = outcome.ok().and_then(|value| value.as_str().map(|text| text.trim().to_owned()));
        Ok(message.filter(|text| !text.is_empty() && text.len() <= MESSAGE_BYTES_MAX && !text.contains('\n')))
    }

    fn report(&mut self, rule: &Compiled, error: FieldError, correlation: Correlation<'a>) {
        if !rule.uses_old_self && correlation.is_unchanged(&mut self.unchanged) {
            self.result.warnings.push(error.to_string());
        } else {
            self.result.errors.push(error);
        }
    }

    fn invalid(&mut self, node: &Node, detail: String) {
        self.result.errors.push(FieldError::invalid(&self.path(), &*node.kind, detail));
    }

    fn stop(&mut self, node: &Node, detail: String) -> Stopped {
        self.invalid(node, detail);
        self.budget = 0;
        Stopped
    }
}
