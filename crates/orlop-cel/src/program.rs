//! Programs: compiled expressions.

use std::fmt;
use std::sync::Arc;

use crate::activation::Activation;
use crate::checker::{Checked, Reference};
use crate::composition::Composed;
use crate::cost::estimator::estimate;
use crate::cost::{Budget, CostEstimate};
use crate::env::Env;
use crate::error::{CompileErrors, EvalError};
use crate::evaluator::Evaluator;
use crate::planner::{Node, plan};
use crate::types::Type;
use crate::value::Value;

/// An expression ready to be evaluated, any number of times, on any thread. Clones share everything.
#[derive(Clone)]
pub struct Program {
    pub(crate) compiled: Arc<Compiled>,
}

pub(crate) struct Compiled {
    pub(crate) env: Env,
    pub(crate) root: Node,
    pub(crate) slots: usize,
    /// Depth of nesting, which bounds the stack that an evaluation takes.
    pub(crate) depth: u32,
    result: Type,
    cost: CostEstimate,
    /// Indices of the environment's variables that the expression names.
    variables: Vec<usize>,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program")
            .field("result", &self.compiled.result)
            .field("cost", &self.compiled.cost)
            .finish_non_exhaustive()
    }
}

impl Program {
    pub(crate) fn new(env: Env, checked: Checked) -> Result<Self, CompileErrors> {
        let cost = estimate(&env.scope, &checked);
        let root = plan(&checked)?;
        let result = checked.type_of(&checked.ast.root).clone();
        let named = checked.references.iter().filter_map(|reference| match reference {
            Reference::Variable(index) => Some(*index),
            _ => None,
        });
        let mut variables: Vec<usize> = named.collect();
        variables.sort_unstable();
        variables.dedup();
        let compiled =
            Compiled { env, root, slots: checked.slots, depth: checked.ast.depth, result, cost, variables };
        Ok(Self { compiled: Arc::new(compiled) })
    }

    /// Returns the type of the expression.
    pub fn result_type(&self) -> &Type {
        &self.compiled.result
    }

    /// Returns the estimated cost on data that fits the schemas of the environment.
    pub fn estimate(&self) -> CostEstimate {
        self.compiled.cost
    }

    /// Returns whether the expression references this variable. A rule that references `oldSelf` is a transition rule.
    pub fn uses(&self, variable: &str) -> bool {
        let declared = &self.compiled.env.scope.variables;
        self.compiled
            .variables
            .iter()
            .filter_map(|index| declared.get(*index))
            .any(|found| found.name == variable)
    }

    /// Evaluates the expression. The value may borrow from the data and from the program.
    pub fn evaluate<'a>(
        &'a self,
        activation: &Activation<'a>,
        budget: &mut Budget<'_>,
    ) -> Result<Value<'a>, EvalError> {
        Evaluator::new(&self.compiled, activation, None, budget).run()
    }

    /// Evaluates the expression with variables that are expressions themselves.
    pub fn evaluate_composed<'a>(
        &'a self,
        activation: &Activation<'a>,
        composed: &Composed<'a>,
        budget: &mut Budget<'_>,
    ) -> Result<Value<'a>, EvalError> {
        Evaluator::new(&self.compiled, activation, Some(composed), budget).run()
    }
}
