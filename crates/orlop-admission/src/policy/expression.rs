//! Compiled expressions, and their evaluation within the policy's budget.

use orlop_cel::{
    Activation, AdmissionVariables, Budget, Composed, Composition, EXPRESSION_COST_MAX, EvalError,
    ExpressionCompiler, ExpressionOrigin, Program, ReturnType, Value,
};

use super::definition::{items, text};

/// Error of expressions that together cost too much.
pub(super) const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// An expression of a policy.
#[derive(Debug)]
pub(super) struct Expression {
    pub(super) text: String,
    /// An expression that another program has stored may not compile.
    program: Result<Program, String>,
}

/// Compiles the expressions of a policy.
#[derive(Debug)]
pub(super) struct Expressions {
    compiler: ExpressionCompiler,
    pub(super) composition: Composition,
    pub(super) declared: AdmissionVariables,
}

impl Expressions {
    /// Compiles the variables of a policy's spec.
    pub(super) fn new(spec: &serde_json::Value, has_params: bool) -> Self {
        let mut compiler = ExpressionCompiler::with_variables(ExpressionOrigin::Stored);
        let mut composition = Composition::default();
        let declared = AdmissionVariables { params: has_params, authorizer: true, patch_types: false };
        for variable in items(spec, "variables") {
            let name = text(variable, "name");
            composition.insert(name, compiler.compile_variable(name, text(variable, "expression"), declared));
        }
        Self { compiler, composition, declared }
    }

    pub(super) fn compile(
        &self,
        text: &str,
        declared: AdmissionVariables,
        returns: ReturnType,
    ) -> Expression {
        Expression { text: text.to_owned(), program: self.compiler.compile(text, declared, returns) }
    }
}

/// The reason why no further expression of a policy is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    OutOfBudget,
    /// An authorization check has to wait. Another evaluation follows.
    Interrupted,
}

/// The evaluation of one list of expressions: validations, messages, … Variables are evaluated once for each list.
pub(super) struct Evaluation<'a> {
    activation: &'a Activation<'a>,
    composed: Composed<'a>,
    remaining: u64,
}

impl<'a> Evaluation<'a> {
    pub(super) fn new(activation: &'a Activation<'a>, composition: &'a Composition, budget: u64) -> Self {
        Self { activation, composed: Composed::new(composition, EXPRESSION_COST_MAX), remaining: budget }
    }

    /// The rest of the budget.
    pub(super) fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Evaluates an expression. The inner error is that of the expression alone.
    pub(super) fn evaluate(&mut self, expression: &'a Expression) -> Result<Result<Value<'a>, String>, Stop> {
        let program = match &expression.program {
            Ok(program) => program,
            Err(why) => return Ok(Err(format!("compilation error: {why}"))),
        };
        self.composed.limit(self.remaining);
        let mut budget = Budget::new(EXPRESSION_COST_MAX);
        let value = program.evaluate_composed(self.activation, &self.composed, &mut budget);
        if value == Err(EvalError::Interrupted) {
            return Err(Stop::Interrupted);
        }
        let cost = self.composed.cost().saturating_add(budget.used());
        self.remaining = self.remaining.checked_sub(cost).ok_or(Stop::OutOfBudget)?;
        Ok(value.map_err(|error| format!("expression '{}' resulted in error: {error}", expression.text)))
    }
}
