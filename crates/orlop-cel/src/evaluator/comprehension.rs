//! Evaluation of comprehensions.
//!
//! An iteration costs its body plus the accumulator step of cel-go's expansion; see the table in [`step`]. `all` and
//! `exists` short-circuit and absorb errors of the other elements; the other macros fail with the first error.

use std::collections::BTreeMap;

use super::collect::{insert, map_key};
use super::{Evaluator, Slot};
use crate::ast::ComprehensionKind;
use crate::cost::NEW_LIST;
use crate::cost::rules::Rule;
use crate::error::EvalError;
use crate::functions::EvalResult;
use crate::library::lists::sort_by_keys;
use crate::planner::ComprehensionNode;
use crate::value::{Key, List, Map, Value};

/// Iteration range: elements, or entries for maps and two-variable comprehensions.
enum Range<'a> {
    List(List<'a>),
    Map(Vec<Key<'a>>, Map<'a>),
}

impl<'a> Range<'a> {
    fn len(&self) -> usize {
        match self {
            Self::List(list) => list.len(),
            Self::Map(keys, _) => keys.len(),
        }
    }
}

impl<'a> Evaluator<'_, '_, 'a> {
    pub(super) fn comprehension(&mut self, node: &'a ComprehensionNode) -> EvalResult<'a> {
        let range = match self.eval(&node.range)? {
            Value::List(list) => Range::List(list),
            Value::Map(map) => Range::Map(map.keys(), map),
            other => {
                let kind = go_type(&other);
                return Err(EvalError::Failed(match node.slot2 {
                    Some(_) => format!("unsupported comprehension range type: {kind}"),
                    None => format!("got '{kind}', expected iterable type"),
                }));
            }
        };
        match node.kind {
            ComprehensionKind::All => self.quantify(node, &range, false),
            ComprehensionKind::Exists => self.quantify(node, &range, true),
            ComprehensionKind::ExistsOne => self.exists_one(node, &range),
            ComprehensionKind::Map | ComprehensionKind::Filter => self.transform_list(node, &range),
            ComprehensionKind::TransformMap | ComprehensionKind::TransformMapEntry => {
                self.transform_map(node, &range)
            }
            ComprehensionKind::SortBy => self.sort_by(node, &range),
        }
    }

    /// Binds the variables for one iteration.
    fn enter(&mut self, node: &ComprehensionNode, range: &Range<'a>, at: usize) -> Result<(), EvalError> {
        self.budget.iterate()?;
        let (first, second) = match range {
            Range::List(list) if node.slot2.is_some() => (Value::Int(at as i64), Some(list.at(at)?)),
            Range::List(list) => (list.at(at)?, None),
            Range::Map(keys, map) => {
                let key = &keys[at];
                let value = match node.slot2 {
                    Some(_) => map.get(key).transpose()?,
                    None => None,
                };
                (key.to_value(), value)
            }
        };
        self.slots[node.slot] = Slot::Ready(first);
        if let (Some(slot2), Some(second)) = (node.slot2, second) {
            self.slots[slot2] = Slot::Ready(second);
        }
        Ok(())
    }

    /// Takes the first variable's value at the end of an iteration.
    fn leave(&mut self, node: &ComprehensionNode) -> EvalResult<'a> {
        match std::mem::replace(&mut self.slots[node.slot], Slot::Empty) {
            Slot::Ready(value) => Ok(value),
            _ => Err(EvalError::no_such_overload()),
        }
    }

    /// `all` (decided by a false) and `exists` (decided by a true).
    fn quantify(&mut self, node: &'a ComprehensionNode, range: &Range<'a>, deciding: bool) -> EvalResult<'a> {
        // The look at the accumulator before each step, once more where it ends the loop early.
        let condition = if deciding { 3 } else { 2 };
        let mut failure = None;
        for at in 0..range.len() {
            self.charge(condition + 1)?;
            let verdict = match self.enter(node, range, at) {
                Ok(()) => self.eval(&node.body),
                Err(error) => Err(error),
            };
            match verdict {
                Ok(Value::Bool(value)) if value == deciding => {
                    let looked_again = if at + 1 < range.len() { condition } else { 0 };
                    self.charge(looked_again + 1)?;
                    return Ok(Value::Bool(deciding));
                }
                Ok(Value::Bool(_)) => {}
                Ok(_) => failure = failure.or_else(|| Some(EvalError::no_such_overload())),
                Err(error) if error.is_absorbable() => failure = failure.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        self.charge(1)?;
        failure.map_or(Ok(Value::Bool(!deciding)), Err)
    }

    fn exists_one(&mut self, node: &'a ComprehensionNode, range: &Range<'a>) -> EvalResult<'a> {
        let mut count = 0_u64;
        for at in 0..range.len() {
            self.enter(node, range, at)?;
            if self.holds(&node.body)? {
                self.charge(2)?;
                count += 1;
            }
        }
        self.charge(2)?;
        Ok(Value::Bool(count == 1))
    }

    fn holds(&mut self, predicate: &'a crate::planner::Node) -> Result<bool, EvalError> {
        match self.eval(predicate)? {
            Value::Bool(value) => Ok(value),
            _ => Err(EvalError::no_such_overload()),
        }
    }

    fn passes(&mut self, node: &'a ComprehensionNode) -> Result<bool, EvalError> {
        node.filter.as_ref().map_or(Ok(true), |filter| self.holds(filter))
    }

    fn transform_list(&mut self, node: &'a ComprehensionNode, range: &Range<'a>) -> EvalResult<'a> {
        let mut values = Vec::new();
        for at in 0..range.len() {
            self.enter(node, range, at)?;
            if node.kind == ComprehensionKind::Filter {
                if self.holds(&node.body)? {
                    // The accumulator, a list of the element, the element, and their sum.
                    self.charge(3 + NEW_LIST)?;
                    values.push(self.leave(node)?);
                }
            } else if self.passes(node)? {
                self.charge(2 + NEW_LIST)?;
                values.push(self.eval(&node.body)?);
            }
        }
        self.charge(1)?;
        Ok(Value::list(values))
    }

    fn transform_map(&mut self, node: &'a ComprehensionNode, range: &Range<'a>) -> EvalResult<'a> {
        let mut map = BTreeMap::new();
        for at in 0..range.len() {
            self.enter(node, range, at)?;
            if !self.passes(node)? {
                continue;
            }
            let body = self.eval(&node.body)?;
            if node.kind == ComprehensionKind::TransformMap {
                self.charge(3)?;
                insert(&mut map, map_key(&self.leave(node)?)?, body)?;
            } else {
                self.charge(2)?;
                let Value::Map(entries) = body else { return Err(EvalError::no_such_overload()) };
                for (key, value) in entries.entries()? {
                    insert(&mut map, key, value)?;
                }
            }
        }
        self.charge(1)?;
        Ok(Value::Map(Map::from(map)))
    }

    fn sort_by(&mut self, node: &'a ComprehensionNode, range: &Range<'a>) -> EvalResult<'a> {
        let Range::List(list) = range else { return Err(EvalError::no_such_overload()) };
        // The list under its name, twice.
        self.charge(2)?;
        let mut keys = Vec::with_capacity(list.len());
        for at in 0..list.len() {
            self.enter(node, range, at)?;
            self.charge(2 + NEW_LIST)?;
            keys.push(self.eval(&node.body)?);
        }
        self.charge(1)?;
        let keys = Value::list(keys);
        self.charge(Rule::SelfCompare { text: false }.charge(std::slice::from_ref(&keys), None))?;
        let Value::List(keys) = keys else { return Err(EvalError::no_such_overload()) };
        sort_by_keys(list.to_values()?, keys.to_values()?)
    }
}

/// Returns the Go type name of a value, which cel-go's messages contain.
fn go_type(value: &Value<'_>) -> String {
    match value {
        Value::Null => "types.Null".to_owned(),
        Value::Bool(_) => "types.Bool".to_owned(),
        Value::Int(_) => "types.Int".to_owned(),
        Value::Uint(_) => "types.Uint".to_owned(),
        Value::Double(_) => "types.Double".to_owned(),
        Value::String(_) => "types.String".to_owned(),
        Value::Bytes(_) => "types.Bytes".to_owned(),
        Value::Timestamp(_) => "types.Timestamp".to_owned(),
        Value::Duration(_) => "types.Duration".to_owned(),
        other => other.type_of().runtime_name().to_string(),
    }
}
