//! Composition: variables that are expressions themselves, as admission policies declare them.
//!
//! `variables.x` is evaluated when an expression first references it, and once for an activation. Its cost counts apart
//! from the expression that references it, as in Kubernetes: each variable has the limit of an expression, and all of
//! them share the rest of a policy's budget.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use crate::activation::Activation;
use crate::cost::Budget;
use crate::error::EvalError;
use crate::functions::EvalResult;
use crate::parser::DEPTH_MAX;
use crate::program::Program;
use crate::types::MessageType;
use crate::value::{MessageValue, Value};

/// The name before the dot.
pub(crate) const VARIABLES: &str = "variables";
/// The type of [`VARIABLES`].
pub(crate) const VARIABLES_TYPE: &str = "kubernetes.variables";

/// Named expressions that others reference as `variables.name`.
#[derive(Clone, Debug, Default)]
pub struct Composition {
    variables: HashMap<String, Result<Program, String>>,
}

impl Composition {
    /// Adds a variable: its program, or the reason why it has none.
    pub fn insert(&mut self, name: impl Into<String>, program: Result<Program, String>) {
        self.variables.insert(name.into(), program);
    }

    /// Returns whether there are no variables.
    pub fn is_empty(&self) -> bool {
        self.variables.is_empty()
    }
}

/// The values of a composition's variables for one activation.
#[derive(Debug)]
pub struct Composed<'a> {
    composition: &'a Composition,
    values: RefCell<HashMap<&'a str, Result<Value<'a>, EvalError>>>,
    each: u64,
    left: Cell<u64>,
    cost: Cell<u64>,
    /// Nesting of the expressions that are being evaluated, because each takes stack.
    depth: Cell<u32>,
}

impl<'a> Composed<'a> {
    /// Returns the variables of a composition, none of them evaluated yet. Each may cost `each` units.
    pub fn new(composition: &'a Composition, each: u64) -> Self {
        Self {
            composition,
            values: RefCell::default(),
            each,
            left: Cell::new(u64::MAX),
            cost: Cell::new(0),
            depth: Cell::new(0),
        }
    }

    /// Limits what variables may cost together from now on.
    pub fn limit(&self, total: u64) {
        self.left.set(total);
        self.cost.set(0);
    }

    /// Returns what variables have cost since they were last limited.
    pub fn cost(&self) -> u64 {
        self.cost.get()
    }

    /// Returns the value of `variables.x`, or of `variables` itself; `None` for other names.
    pub(crate) fn resolve(
        &self,
        name: &str,
        activation: &Activation<'a>,
        budget: &mut Budget<'_>,
    ) -> Option<EvalResult<'a>> {
        match name.strip_prefix(VARIABLES)? {
            "" => Some(self.all(activation, budget)),
            rest => {
                let (name, program) = self.composition.variables.get_key_value(rest.strip_prefix('.')?)?;
                // Selecting the field.
                Some(budget.charge(1).and_then(|()| self.value(name, program, activation, budget)))
            }
        }
    }

    /// All variables as a message, for `has(variables.x)` and `variables.?x`. Those that fail are null.
    fn all(&self, activation: &Activation<'a>, budget: &mut Budget<'_>) -> EvalResult<'a> {
        let mut fields = Vec::with_capacity(self.composition.variables.len());
        for (name, program) in &self.composition.variables {
            let value = match self.value(name, program, activation, budget) {
                Err(error) if !error.is_absorbable() => return Err(error),
                value => value.unwrap_or(Value::Null),
            };
            fields.push((name.as_str(), value));
        }
        let message = Arc::new(MessageType { name: VARIABLES_TYPE.to_owned(), fields: None });
        Ok(Value::Message(Arc::new(MessageValue { message, fields })))
    }

    fn value(
        &self,
        name: &'a str,
        program: &'a Result<Program, String>,
        activation: &Activation<'a>,
        budget: &Budget<'_>,
    ) -> EvalResult<'a> {
        let program = match program {
            Ok(program) => program,
            Err(why) => {
                return Err(EvalError::Failed(format!(
                    "composited variable {name:?} fails to compile: {why}"
                )));
            }
        };
        if let Some(known) = self.values.borrow().get(name) {
            return known.clone();
        }
        let depth = self.depth.get();
        let deeper = depth + program.compiled.depth.max(1);
        if deeper > DEPTH_MAX {
            return Err(EvalError::Failed(format!(
                "composited variable {name:?} fails to evaluate: max recursion depth exceeded"
            )));
        }
        self.depth.set(deeper);
        let mut own = budget.nested(self.each.min(self.left.get()));
        let value = program.evaluate_composed(activation, self, &mut own);
        self.depth.set(depth);
        self.cost.set(self.cost.get().saturating_add(own.used()));
        let Some(left) = self.left.get().checked_sub(own.used()) else {
            // Nothing that the expression does with the error could save it.
            self.left.set(0);
            return Err(EvalError::CostLimitExceeded);
        };
        self.left.set(left);
        let value = match value {
            Err(EvalError::Interrupted) => return Err(EvalError::Interrupted),
            Err(error) => {
                Err(EvalError::Failed(format!("composited variable {name:?} fails to evaluate: {error}")))
            }
            Ok(value) => Ok(value),
        };
        self.values.borrow_mut().insert(name, value.clone());
        value
    }
}
