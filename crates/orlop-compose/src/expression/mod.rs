//! Expressions: found in texts, compiled with types, evaluated to JSON.

mod functions;
mod identifiers;
mod reads;
mod scan;
mod types;
mod value;

use std::time::Instant;

use orlop_cel::ast::{Ast, Call, Expr, ExprKind, Literal};
use orlop_cel::{Activation, Budget, Env, EvalError, Program, Type, Value};
use serde_json::Value as Json;

use crate::metrics::{Count, Metrics, Time};

pub(crate) use functions::{CONDITION, CONDITION_FIELDS, condition_type, environment};
pub(crate) use identifiers::Identifiers;
pub(crate) use reads::Reads;
pub(crate) use scan::{standalone, to_cel};
pub(crate) use types::{is_assignable, literal_type_name, schema_of_type, types_of_schema};
pub(crate) use value::to_json;

/// Cost that one evaluation may have: far more than any sane expression, little enough to end within a second.
const COST_MAX: u64 = 50_000_000;

/// A compiled expression.
#[derive(Clone, Debug)]
pub(crate) struct Expression {
    /// CEL as the author wrote it; for a text with several expressions, their sum.
    pub(crate) text: String,
    /// Variables that it reads.
    pub(crate) variables: Vec<String>,
    program: Program,
}

/// An expression that has no value now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Data that it reads is not there yet.
    Pending(String),
    /// It fails on this data.
    Failed(String),
}

impl Failure {
    /// The text of the error.
    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Pending(message) | Self::Failed(message) => message,
        }
    }
}

/// Texts of errors that mean: not yet. kro tells them apart by their text, and so do its users' graphs.
const PENDING: [&str; 4] = ["no such key", "no such field", "no such attribute", "index out of bounds"];

impl From<EvalError> for Failure {
    fn from(error: EvalError) -> Self {
        let message = error.to_string();
        if PENDING.iter().any(|text| message.contains(text)) {
            Self::Pending(message)
        } else {
            Self::Failed(message)
        }
    }
}

impl Expression {
    /// Compiles CEL; the error is the checker's text with the line and a caret.
    pub(crate) fn compile(env: &Env, text: &str) -> Result<Self, String> {
        let mut ast = env.parse(text).map_err(|errors| errors.to_string())?;
        quote_condition_keys(&mut ast);
        let variables = Identifiers::of(&ast).variables.into_iter().collect();
        let program = env.compile_ast(text, ast).map_err(|errors| errors.to_string())?;
        Ok(Self { text: text.to_owned(), variables, program })
    }

    /// The type of its value.
    pub(crate) fn result_type(&self) -> &Type {
        self.program.result_type()
    }

    /// Evaluates to a value, which `read` turns into something owned.
    pub(crate) fn evaluate_with<T>(
        &self,
        scope: &Scope<'_>,
        read: impl FnOnce(&Value<'_>) -> Result<T, EvalError>,
    ) -> Result<T, Failure> {
        let mut activation = Activation::new();
        for (name, json) in &scope.bindings {
            activation = activation.json(name, json);
        }
        let mut budget = Budget::new(COST_MAX);
        let began = scope.metrics.map(|_| Instant::now());
        let value = self.program.evaluate(&activation, &mut budget);
        if let (Some(metrics), Some(began)) = (scope.metrics, began) {
            metrics.count(Count::Expressions, &[]);
            metrics.took(Time::Expression, &[], began.elapsed());
        }
        Ok(read(&value?)?)
    }

    /// Evaluates to JSON; `None` stands for `omit()`.
    pub(crate) fn evaluate(&self, scope: &Scope<'_>) -> Result<Option<Json>, Failure> {
        self.evaluate_with(scope, to_json)
    }

    /// Evaluates a condition; null and an empty optional are false.
    pub(crate) fn evaluate_condition(&self, scope: &Scope<'_>) -> Result<bool, Failure> {
        match self.evaluate(scope)? {
            Some(Json::Bool(value)) => Ok(value),
            Some(Json::Null) => Ok(false),
            other => Err(Failure::Failed(format!(
                "expression \"{}\" must return bool, got {}",
                self.text,
                other.unwrap_or(Json::Null)
            ))),
        }
    }
}

/// The variables of an evaluation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope<'a> {
    bindings: Vec<(&'a str, &'a Json)>,
    metrics: Option<&'a Metrics>,
}

impl<'a> Scope<'a> {
    /// A scope whose evaluations are measured.
    pub(crate) fn measured(metrics: &'a Metrics) -> Self {
        Self { bindings: Vec::new(), metrics: Some(metrics) }
    }

    /// The value of a variable.
    pub(crate) fn get(&self, name: &str) -> Option<&'a Json> {
        self.bindings.iter().rev().find(|(bound, _)| *bound == name).map(|(_, json)| *json)
    }

    /// The metrics that evaluations are counted in.
    pub(crate) fn metrics(&self) -> Option<&'a Metrics> {
        self.metrics
    }

    /// Binds a variable; a later binding hides an earlier one.
    pub(crate) fn bind(&mut self, name: &'a str, json: &'a Json) {
        self.bindings.push((name, json));
    }
}

/// Lets authors write `runtime.newCondition({type: 'X'})`: bare words become strings.
fn quote_condition_keys(ast: &mut Ast) {
    fn quote(expr: &mut Expr) {
        match &mut expr.kind {
            ExprKind::Call(call) => {
                let Call { target, function, args } = &mut **call;
                let named = target
                    .as_deref()
                    .is_some_and(|target| matches!(&target.kind, ExprKind::Ident(name) if name == "runtime"));
                if named && function == "newCondition" {
                    for arg in args.iter_mut() {
                        quote_keys(arg);
                    }
                }
                target.iter_mut().for_each(|target| quote(target));
                args.iter_mut().for_each(quote);
            }
            ExprKind::List(elements) => elements.iter_mut().for_each(|element| quote(&mut element.value)),
            ExprKind::Map(entries) => entries.iter_mut().for_each(|entry| quote(&mut entry.value)),
            ExprKind::Comprehension(comprehension) => {
                quote(&mut comprehension.range);
                quote(&mut comprehension.body);
            }
            ExprKind::Bind(bind) => {
                quote(&mut bind.value);
                quote(&mut bind.body);
            }
            ExprKind::OptMap(opt_map) => {
                quote(&mut opt_map.target);
                quote(&mut opt_map.body);
            }
            _ => {}
        }
    }
    fn quote_keys(map: &mut Expr) {
        let ExprKind::Map(entries) = &mut map.kind else { return };
        for entry in entries {
            if let ExprKind::Ident(name) = &entry.key.kind {
                entry.key.kind = ExprKind::Literal(Literal::String(name.clone()));
            }
        }
    }
    quote(&mut ast.root);
}
