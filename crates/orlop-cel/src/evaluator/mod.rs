//! The evaluator: interprets a plan.
//!
//! Evaluation recurses over the plan; the parser bounds its depth. Values borrow from the document and the program and
//! are converted lazily. Each step is charged to the budget, before it runs where its cost is known, otherwise after.
//! `&&`, `||`, `all` and `exists` absorb [`EvalError::Failed`], but never an exhausted budget.

mod access;
mod call;
mod collect;
mod comprehension;
mod operators;

pub(crate) use operators::add;

use crate::activation::Activation;
use crate::composition::Composed;
use crate::cost::Budget;
use crate::error::EvalError;
use crate::functions::EvalResult;
use crate::planner::{ConditionalNode, Node};
use crate::program::Compiled;
use crate::value::Value;

pub(crate) struct Evaluator<'e, 'h, 'a> {
    compiled: &'a Compiled,
    activation: &'e Activation<'a>,
    composed: Option<&'e Composed<'a>>,
    budget: &'e mut Budget<'h>,
    slots: Vec<Slot<'a>>,
}

/// A local variable.
#[derive(Clone)]
enum Slot<'a> {
    Empty,
    /// Bound but not yet needed.
    Pending(&'a Node),
    Ready(Value<'a>),
    Failed(EvalError),
}

impl<'e, 'h, 'a> Evaluator<'e, 'h, 'a> {
    pub(crate) fn new(
        compiled: &'a Compiled,
        activation: &'e Activation<'a>,
        composed: Option<&'e Composed<'a>>,
        budget: &'e mut Budget<'h>,
    ) -> Self {
        Self { compiled, activation, composed, budget, slots: vec![Slot::Empty; compiled.slots] }
    }

    pub(crate) fn run(mut self) -> EvalResult<'a> {
        self.budget.start();
        self.eval(&self.compiled.root)
    }

    fn charge(&mut self, cost: u64) -> Result<(), EvalError> {
        self.budget.charge(cost)
    }

    fn eval(&mut self, node: &'a Node) -> EvalResult<'a> {
        match node {
            Node::Constant(Value::String(text)) => Ok(Value::borrowed(text)),
            Node::Constant(value) => Ok(value.clone()),
            Node::Variable(index) => self.variable(*index),
            Node::Local(slot) => self.local(*slot),
            Node::Field(field) => self.field(field),
            Node::Not(operand) => self.not(operand),
            Node::Negate(operand) => self.negate(operand),
            Node::And(terms) => self.logical(terms, false),
            Node::Or(terms) => self.logical(terms, true),
            Node::Conditional(conditional) => self.conditional(conditional),
            Node::Binary(binary) => self.binary(binary),
            Node::InConstants(operand, list) => self.in_constants(operand, list),
            Node::Index(index) => self.index(index),
            Node::OptionalOr(or) => self.optional_or(or),
            Node::Call(call) => self.call(call),
            Node::List(elements) => self.list(elements),
            Node::Map(entries) => self.map(entries),
            Node::Message(message) => self.message(message),
            Node::Comprehension(comprehension) => self.comprehension(comprehension),
            Node::Bind(bind) => {
                self.slots[bind.slot] = Slot::Pending(&bind.value);
                self.eval(&bind.body)
            }
            Node::OptMap(opt_map) => self.opt_map(opt_map),
        }
    }

    fn variable(&mut self, index: usize) -> EvalResult<'a> {
        self.charge(1)?;
        let Some(variable) = self.compiled.env.scope.variables.get(index) else {
            return Err(EvalError::failed("no such attribute"));
        };
        if let Some(composed) = self.composed
            && let Some(value) = composed.resolve(&variable.name, self.activation, self.budget)
        {
            return value;
        }
        self.activation.resolve(&variable.name, &variable.declared, variable.schema.as_ref())
    }

    fn local(&mut self, slot: usize) -> EvalResult<'a> {
        self.charge(1)?;
        let pending = match &self.slots[slot] {
            Slot::Ready(value) => return Ok(value.clone()),
            Slot::Failed(error) => return Err(error.clone()),
            Slot::Empty => return Err(EvalError::failed("no such attribute")),
            Slot::Pending(node) => *node,
        };
        let result = self.eval(pending);
        self.slots[slot] = match &result {
            Ok(value) => Slot::Ready(value.clone()),
            Err(error) => Slot::Failed(error.clone()),
        };
        result
    }

    /// One term decides alone: false for `&&`, true for `||`, even if others fail. Else the first failure counts.
    fn logical(&mut self, terms: &'a [Node], deciding: bool) -> EvalResult<'a> {
        let mut failure = None;
        for term in terms {
            match self.eval(term) {
                Ok(Value::Bool(value)) if value == deciding => return Ok(Value::Bool(deciding)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => failure = failure.or_else(|| Some(EvalError::no_such_overload())),
                Err(error) if error.is_absorbable() => failure = failure.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        failure.map_or(Ok(Value::Bool(!deciding)), Err)
    }

    fn conditional(&mut self, node: &'a ConditionalNode) -> EvalResult<'a> {
        let branch = match self.eval(&node.condition)? {
            Value::Bool(true) => &node.yes,
            Value::Bool(false) => &node.no,
            _ => return Err(EvalError::no_such_overload()),
        };
        let value = self.eval(branch)?;
        // Choosing between variables is free, as in cel-go: only the fields selected below them count.
        if branch.is_attribute() {
            self.budget.refund(1);
        }
        Ok(value)
    }
}
