//! Reaching into values: fields, indices, optionals.
//!
//! Absence is an error (`no such key`) for `a.b` and `a[b]`, and `optional.none()` for `a.?b` and `a[?b]` and for
//! everything reached from an optional. `has(a.b)` asks without failing, except that `a` itself must exist.

use super::{Evaluator, Slot};
use crate::ast::SelectMode;
use crate::error::EvalError;
use crate::functions::EvalResult;
use crate::number::{double_to_int, double_to_uint};
use crate::planner::{FieldNode, IndexNode, Node, OptMapNode, OptionalOrNode};
use crate::types::Type;
use crate::value::{Key, List, Map, Text, Value};
use serde_json::Value as Json;

type RawMap = serde_json::Map<String, Json>;

/// Result of a field or index look-up.
type Found<'a> = Option<Result<Value<'a>, EvalError>>;

impl<'a> Evaluator<'_, '_, 'a> {
    pub(super) fn field(&mut self, node: &'a FieldNode) -> EvalResult<'a> {
        if let (SelectMode::Value, Some((_, schema))) = (node.mode, &node.declared)
            && let Some(found) = self.declared_field(node)
        {
            return Value::from_json(found?, Some(schema));
        }
        let operand = self.eval(&node.operand)?;
        if node.mode != SelectMode::Presence && node.operand.is_computed() {
            self.charge(1)?;
        }
        let (operand, was_optional) = match operand {
            Value::Optional(None) if node.mode == SelectMode::Presence => return Ok(Value::Bool(false)),
            Value::Optional(None) => return Ok(Value::none()),
            Value::Optional(Some(value)) => (Value::clone(&value), true),
            other => (other, false),
        };
        let found = find_field(&operand, node);
        match node.mode {
            SelectMode::Presence => Ok(Value::Bool(found.is_some())),
            SelectMode::Value if !was_optional => {
                self.charge(1)?;
                found.unwrap_or_else(|| Err(EvalError::no_such_key(&node.name)))
            }
            _ => self.optionally(found),
        }
    }

    /// The JSON of a field whose whole way from a variable of the document is declared, which is the usual case:
    /// no intermediate values are created. `None` if the path is not such; then nothing is charged.
    fn declared_field(&mut self, node: &'a FieldNode) -> Option<Result<&'a Json, EvalError>> {
        let (json_name, _) = node.declared.as_ref()?;
        let object = match self.declared_object(&node.operand)? {
            Ok(object) => object,
            Err(error) => return Some(Err(error)),
        };
        if let Err(error) = self.charge(1) {
            return Some(Err(error));
        }
        Some(match object.get(json_name) {
            None | Some(Json::Null) => Err(EvalError::no_such_key(&node.name)),
            Some(json) => Ok(json),
        })
    }

    /// The JSON object behind a variable or a declared field.
    fn declared_object(&mut self, node: &'a Node) -> Option<Result<&'a RawMap, EvalError>> {
        let object = match node {
            Node::Variable(index) => {
                let variable = self.compiled.env.scope.variables.get(*index)?;
                let json = self.activation.bound_json(&variable.name)?;
                json.as_object().filter(|_| matches!(variable.declared, Type::Object(_)))?
            }
            Node::Local(slot) => match &self.slots[*slot] {
                Slot::Ready(Value::Map(Map::Json(object, Some(_)))) => object,
                _ => return None,
            },
            Node::Field(field) if field.mode == SelectMode::Value => {
                let (_, schema) = field.declared.as_ref()?;
                return Some(self.declared_field(field)?.and_then(|json| match json {
                    Json::Object(object) => Ok(object),
                    // Not an object: reading it fails.
                    other => Value::from_json(other, Some(schema)).and(Err(EvalError::no_such_overload())),
                }));
            }
            _ => return None,
        };
        Some(self.charge(1).map(|()| object))
    }

    /// An absent value costs nothing.
    fn optionally(&mut self, found: Found<'a>) -> EvalResult<'a> {
        match found {
            None => Ok(Value::none()),
            Some(value) => {
                self.charge(1)?;
                value.map(Value::some)
            }
        }
    }

    pub(super) fn index(&mut self, node: &'a IndexNode) -> EvalResult<'a> {
        let operand = self.eval(&node.operand)?;
        if node.operand.is_computed() {
            self.charge(1)?;
        }
        let index = self.eval(&node.index)?;
        // A variable as an index is part of the attribute, whose qualifier is charged once.
        if node.index.is_attribute() {
            self.budget.refund(1);
        }
        let (operand, optional) = match operand {
            Value::Optional(None) => return Ok(Value::none()),
            Value::Optional(Some(value)) => (Value::clone(&value), true),
            other => (other, node.optional),
        };
        let (found, missing): (Found<'a>, &str) = match &operand {
            Value::List(list) => (list_index(&index)?.and_then(|at| list.get(at)), "index out of bounds"),
            Value::Map(map) => (Key::lookup(&index).and_then(|key| map.get(&key)), "no such key"),
            _ => return Err(EvalError::no_such_overload()),
        };
        if optional {
            return self.optionally(found);
        }
        self.charge(1)?;
        found.unwrap_or_else(|| Err(EvalError::Failed(format!("{missing}: {index}"))))
    }

    pub(super) fn optional_or(&mut self, node: &'a OptionalOrNode) -> EvalResult<'a> {
        match self.eval(&node.first)? {
            Value::Optional(None) => self.eval(&node.second),
            Value::Optional(Some(value)) if node.unwrap => Ok(Value::clone(&value)),
            some @ Value::Optional(_) => Ok(some),
            _ => Err(EvalError::no_such_overload()),
        }
    }

    pub(super) fn opt_map(&mut self, node: &'a OptMapNode) -> EvalResult<'a> {
        let before = self.budget.used();
        let target = self.eval(&node.target)?;
        let target_cost = self.budget.used().saturating_sub(before);
        self.charge(1)?;
        let Value::Optional(value) = target else { return Err(EvalError::no_such_overload()) };
        let Some(value) = value else {
            self.charge(1)?;
            return Ok(Value::none());
        };
        // cel-go looks at the target a second time for its value; so does the price.
        self.charge(target_cost.saturating_add(1))?;
        self.slots[node.slot] = Slot::Ready(Value::clone(&value));
        let body = self.eval(&node.body)?;
        if node.flat {
            return Ok(body);
        }
        self.charge(1)?;
        Ok(Value::some(body))
    }
}

fn find_field<'a>(operand: &Value<'a>, node: &'a FieldNode) -> Found<'a> {
    match (operand, &node.declared) {
        (Value::Map(Map::Json(entries, _)), Some((json_name, schema))) => match entries.get(json_name)? {
            Json::Null => None,
            json => Some(Value::from_json(json, Some(schema))),
        },
        (Value::Map(map), _) => map.get(&Key::String(Text::Borrowed(&node.name))),
        (Value::Message(message), _) => message.get(&node.name).cloned().map(Ok),
        _ => None,
    }
}

/// The position an index means; `None` if no list is that long.
fn list_index(index: &Value<'_>) -> Result<Option<usize>, EvalError> {
    Ok(match index {
        Value::Int(at) => usize::try_from(*at).ok(),
        Value::Uint(at) => usize::try_from(*at).ok(),
        Value::Double(at) => {
            let whole = double_to_uint(*at).filter(|whole| *whole as f64 == *at);
            if whole.is_none() && double_to_int(*at).is_none_or(|whole| whole as f64 != *at) {
                return Err(EvalError::Failed(format!("unsupported index value {index} in list")));
            }
            whole.and_then(|at| usize::try_from(at).ok())
        }
        other => {
            let kind = other.type_of();
            return Err(EvalError::Failed(format!(
                "unsupported index type '{}' in list",
                kind.runtime_name()
            )));
        }
    })
}

impl<'a> List<'a> {
    /// The element, or the error that an index beyond the end is.
    pub(crate) fn at(&self, index: usize) -> EvalResult<'a> {
        self.get(index).unwrap_or_else(|| Err(EvalError::Failed(format!("index out of bounds: {index}"))))
    }
}
