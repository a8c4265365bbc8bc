//! Arithmetic, comparison and membership.
//!
//! Both operands are evaluated before an error of either is returned, and the operation is charged even then, as in
//! cel-go. Overflow is an error.

use super::Evaluator;
use crate::cost::rules::Rule;
use crate::error::EvalError;
use crate::functions::EvalResult;
use crate::planner::{BinaryNode, BinaryOperator, Node};
use crate::time::{Duration, Timestamp};
use crate::value::{Key, Text, Value, compare, equals};

impl<'a> Evaluator<'_, '_, 'a> {
    pub(super) fn not(&mut self, operand: &'a Node) -> EvalResult<'a> {
        let value = self.eval(operand);
        self.charge(1)?;
        match value? {
            Value::Bool(value) => Ok(Value::Bool(!value)),
            _ => Err(EvalError::no_such_overload()),
        }
    }

    pub(super) fn negate(&mut self, operand: &'a Node) -> EvalResult<'a> {
        let value = self.eval(operand);
        self.charge(1)?;
        match value? {
            Value::Int(value) => value.checked_neg().map(Value::Int).ok_or_else(int_overflow),
            Value::Double(value) => Ok(Value::Double(-value)),
            Value::Duration(value) => {
                let nanos = value.nanos.checked_neg().ok_or_else(int_overflow)?;
                Ok(Value::Duration(Duration { nanos }))
            }
            _ => Err(EvalError::no_such_overload()),
        }
    }

    pub(super) fn in_constants(&mut self, operand: &'a Node, list: &'a Value<'static>) -> EvalResult<'a> {
        let value = self.eval(operand)?;
        match list {
            Value::List(list) => list.contains(&value).map(Value::Bool),
            _ => Err(EvalError::no_such_overload()),
        }
    }

    pub(super) fn binary(&mut self, node: &'a BinaryNode) -> EvalResult<'a> {
        let left = self.eval(&node.left);
        if left.as_ref().is_err_and(|error| !error.is_absorbable()) {
            return left;
        }
        let right = self.eval(&node.right);
        let (left, right) = match (left, right) {
            (Ok(left), Ok(right)) => (left, right),
            (Err(error), _) | (Ok(_), Err(error)) => {
                self.charge(1)?;
                return Err(error);
            }
        };
        self.charge_binary(node.operator, &left, &right)?;
        if node.operator == BinaryOperator::Add {
            self.budget.allocate(left.bytes_if_copied().saturating_add(right.bytes_if_copied()))?;
        }
        apply(node.operator, left, right)
    }

    fn charge_binary(
        &mut self,
        operator: BinaryOperator,
        left: &Value<'a>,
        right: &Value<'a>,
    ) -> Result<(), EvalError> {
        use BinaryOperator as Op;
        let rule = match (operator, left, right) {
            (Op::Equals, Value::Opaque(_), _) => Rule::Unit,
            (Op::Equals | Op::NotEquals, ..) => Rule::CompareText,
            (Op::In, _, Value::List(_)) => Rule::InList,
            (Op::Add, Value::String(_) | Value::Bytes(_), _) => Rule::Concatenate,
            (
                Op::Less | Op::LessEquals | Op::Greater | Op::GreaterEquals,
                Value::String(_) | Value::Bytes(_),
                _,
            ) => Rule::CompareText,
            _ => Rule::Unit,
        };
        let cost = match rule {
            Rule::Unit => 1,
            Rule::InList => right.cost_size(),
            Rule::Concatenate => {
                crate::cost::scale(left.cost_size().saturating_add(right.cost_size()), crate::cost::PER_CHAR)
            }
            _ => crate::cost::scale(left.cost_size().min(right.cost_size()), crate::cost::PER_CHAR),
        };
        self.charge(cost)
    }
}

fn apply<'a>(operator: BinaryOperator, left: Value<'a>, right: Value<'a>) -> EvalResult<'a> {
    use BinaryOperator as Op;
    match operator {
        Op::Equals => equals(&left, &right).map(Value::Bool),
        Op::NotEquals => equals(&left, &right).map(|equal| Value::Bool(!equal)),
        Op::Less => compare(&left, &right).map(|order| Value::Bool(order.is_lt())),
        Op::LessEquals => compare(&left, &right).map(|order| Value::Bool(order.is_le())),
        Op::Greater => compare(&left, &right).map(|order| Value::Bool(order.is_gt())),
        Op::GreaterEquals => compare(&left, &right).map(|order| Value::Bool(order.is_ge())),
        Op::In => contains(&right, &left).map(Value::Bool),
        Op::Add => add(left, right),
        Op::Subtract => subtract(&left, &right),
        Op::Multiply | Op::Divide | Op::Modulo => scale(operator, &left, &right),
    }
}

fn contains(collection: &Value<'_>, wanted: &Value<'_>) -> Result<bool, EvalError> {
    match collection {
        Value::List(list) => list.contains(wanted),
        Value::Map(map) => match Key::lookup(wanted).and_then(|key| map.get(&key)) {
            Some(value) => value.map(|_| true),
            None => Ok(false),
        },
        _ => Err(EvalError::no_such_overload()),
    }
}

pub(crate) fn add<'a>(left: Value<'a>, right: Value<'a>) -> EvalResult<'a> {
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => {
            left.checked_add(right).map(Value::Int).ok_or_else(int_overflow)
        }
        (Value::Uint(left), Value::Uint(right)) => {
            left.checked_add(right).map(Value::Uint).ok_or_else(uint_overflow)
        }
        (Value::Double(left), Value::Double(right)) => Ok(Value::Double(left + right)),
        (Value::String(left), Value::String(right)) => {
            let mut text = String::with_capacity(left.len() + right.len());
            text.push_str(&left);
            text.push_str(&right);
            Ok(Value::String(Text::from(text)))
        }
        (Value::Bytes(left), Value::Bytes(right)) => Ok(Value::bytes([&*left, &*right].concat())),
        (Value::List(left), Value::List(right)) => left.concat(&right).map(Value::List),
        (Value::Timestamp(time), Value::Duration(span)) | (Value::Duration(span), Value::Timestamp(time)) => {
            Timestamp::add(time, span).map(Value::Timestamp)
        }
        (Value::Duration(left), Value::Duration(right)) => {
            let nanos = left.nanos.checked_add(right.nanos).ok_or_else(duration_overflow)?;
            Ok(Value::Duration(Duration { nanos }))
        }
        _ => Err(EvalError::no_such_overload()),
    }
}

fn subtract<'a>(left: &Value<'a>, right: &Value<'a>) -> EvalResult<'a> {
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => {
            left.checked_sub(*right).map(Value::Int).ok_or_else(int_overflow)
        }
        (Value::Uint(left), Value::Uint(right)) => {
            left.checked_sub(*right).map(Value::Uint).ok_or_else(uint_overflow)
        }
        (Value::Double(left), Value::Double(right)) => Ok(Value::Double(left - right)),
        (Value::Timestamp(left), Value::Timestamp(right)) => left.since(*right).map(Value::Duration),
        (Value::Timestamp(time), Value::Duration(span)) => {
            let nanos = span.nanos.checked_neg().ok_or_else(duration_overflow)?;
            time.add(Duration { nanos }).map(Value::Timestamp)
        }
        (Value::Duration(left), Value::Duration(right)) => {
            let nanos = left.nanos.checked_sub(right.nanos).ok_or_else(duration_overflow)?;
            Ok(Value::Duration(Duration { nanos }))
        }
        _ => Err(EvalError::no_such_overload()),
    }
}

/// Multiplication, division and remainder.
fn scale<'a>(operator: BinaryOperator, left: &Value<'a>, right: &Value<'a>) -> EvalResult<'a> {
    use BinaryOperator as Op;
    let by_zero =
        || EvalError::failed(if operator == Op::Divide { "division by zero" } else { "modulus by zero" });
    match (operator, left, right) {
        (Op::Multiply, Value::Int(left), Value::Int(right)) => {
            left.checked_mul(*right).map(Value::Int).ok_or_else(int_overflow)
        }
        (Op::Multiply, Value::Uint(left), Value::Uint(right)) => {
            left.checked_mul(*right).map(Value::Uint).ok_or_else(uint_overflow)
        }
        (Op::Multiply, Value::Double(left), Value::Double(right)) => Ok(Value::Double(left * right)),
        (Op::Divide, Value::Double(left), Value::Double(right)) => Ok(Value::Double(left / right)),
        (Op::Divide | Op::Modulo, Value::Int(_), Value::Int(0))
        | (Op::Divide | Op::Modulo, Value::Uint(_), Value::Uint(0)) => Err(by_zero()),
        (Op::Divide, Value::Int(left), Value::Int(right)) => {
            left.checked_div(*right).map(Value::Int).ok_or_else(int_overflow)
        }
        (Op::Modulo, Value::Int(left), Value::Int(right)) => {
            left.checked_rem(*right).map(Value::Int).ok_or_else(int_overflow)
        }
        (Op::Divide, Value::Uint(left), Value::Uint(right)) => Ok(Value::Uint(left / right)),
        (Op::Modulo, Value::Uint(left), Value::Uint(right)) => Ok(Value::Uint(left % right)),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn int_overflow() -> EvalError {
    EvalError::failed("integer overflow")
}

fn uint_overflow() -> EvalError {
    EvalError::failed("unsigned integer overflow")
}

fn duration_overflow() -> EvalError {
    EvalError::failed("duration overflow")
}
