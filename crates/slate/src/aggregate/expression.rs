//! Expressions: field paths, literals and operators.

use bson::{Bson, Document};

use super::budget::{check_document_len, value_len};
use crate::{
    error::{Error, Result},
    sort::compare_bson,
};

/// Deepest nesting of an expression.
const DEPTH_MAX: usize = 32;

/// A parsed expression.
#[derive(Debug, Clone)]
pub(super) enum Expression {
    Literal(Bson),
    /// `$a.b`
    Field(Vec<String>),
    /// `$$ROOT`
    Root,
    Document(Vec<(String, Expression)>),
    Array(Vec<Expression>),
    Operator(Operator, Vec<Expression>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Mod,
    Concat,
    ToLower,
    ToUpper,
    ToString,
    Condition,
    IfNull,
    And,
    Or,
    Not,
    Equal,
    NotEqual,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    Size,
    ArrayElementAt,
    In,
    Abs,
    Floor,
    Ceil,
}

impl Expression {
    pub(super) fn parse(value: &Bson) -> Result<Self> {
        parse(value, 0)
    }

    pub(super) fn evaluate(&self, document: &Document) -> Result<Bson> {
        Ok(self.value(document)?.unwrap_or(Bson::Null))
    }

    /// Evaluates to nothing where a field is missing.
    pub(super) fn value(&self, document: &Document) -> Result<Option<Bson>> {
        Ok(match self {
            Self::Literal(value) => Some(value.clone()),
            Self::Root => Some(Bson::Document(document.clone())),
            Self::Field(path) => field(document, path),
            Self::Document(fields) => {
                let (mut made, mut length) = (Document::new(), 0);
                for (name, expression) in fields {
                    if let Some(value) = expression.value(document)? {
                        length += value_len(&value);
                        check_document_len(length)?;
                        made.insert(name, value);
                    }
                }
                Some(Bson::Document(made))
            }
            Self::Array(elements) => {
                let (mut values, mut length) = (Vec::with_capacity(elements.len()), 0);
                for element in elements {
                    let value = element.evaluate(document)?;
                    length += value_len(&value);
                    check_document_len(length)?;
                    values.push(value);
                }
                Some(Bson::Array(values))
            }
            Self::Operator(operator, arguments) => Some(apply(*operator, arguments, document)?),
        })
    }
}

fn parse(value: &Bson, depth: usize) -> Result<Expression> {
    if depth > DEPTH_MAX {
        return Err(Error::invalid(format!("an expression is nested at most {DEPTH_MAX} levels deep")));
    }
    Ok(match value {
        Bson::String(text) => match text.strip_prefix("$$") {
            Some("ROOT" | "CURRENT") => Expression::Root,
            Some(variable) => match variable.strip_prefix("ROOT.") {
                Some(path) => Expression::Field(path.split('.').map(str::to_owned).collect()),
                None => return Err(Error::invalid(format!("Use of undefined variable: {variable}"))),
            },
            None => match text.strip_prefix('$') {
                Some(path) => Expression::Field(path.split('.').map(str::to_owned).collect()),
                None => Expression::Literal(value.clone()),
            },
        },
        Bson::Array(elements) => Expression::Array(
            elements.iter().map(|element| parse(element, depth + 1)).collect::<Result<_>>()?,
        ),
        Bson::Document(document) => match document.iter().next() {
            Some((name, argument)) if name.starts_with('$') => {
                if document.len() > 1 {
                    return Err(Error::invalid(
                        "an object representing an expression must have exactly one field",
                    ));
                }
                parse_operator(name, argument, depth)?
            }
            _ => Expression::Document(
                document
                    .iter()
                    .map(|(name, value)| Ok((name.clone(), parse(value, depth + 1)?)))
                    .collect::<Result<_>>()?,
            ),
        },
        _ => Expression::Literal(value.clone()),
    })
}

fn parse_operator(name: &str, argument: &Bson, depth: usize) -> Result<Expression> {
    use Operator as O;
    let (operator, arity) = match name {
        "$literal" => return Ok(Expression::Literal(argument.clone())),
        "$add" => (O::Add, 0..=usize::MAX),
        "$subtract" => (O::Subtract, 2..=2),
        "$multiply" => (O::Multiply, 0..=usize::MAX),
        "$divide" => (O::Divide, 2..=2),
        "$mod" => (O::Mod, 2..=2),
        "$concat" => (O::Concat, 0..=usize::MAX),
        "$toLower" => (O::ToLower, 1..=1),
        "$toUpper" => (O::ToUpper, 1..=1),
        "$toString" => (O::ToString, 1..=1),
        "$cond" => (O::Condition, 3..=3),
        "$ifNull" => (O::IfNull, 2..=usize::MAX),
        "$and" => (O::And, 0..=usize::MAX),
        "$or" => (O::Or, 0..=usize::MAX),
        "$not" => (O::Not, 1..=1),
        "$eq" => (O::Equal, 2..=2),
        "$ne" => (O::NotEqual, 2..=2),
        "$gt" => (O::Greater, 2..=2),
        "$gte" => (O::GreaterOrEqual, 2..=2),
        "$lt" => (O::Less, 2..=2),
        "$lte" => (O::LessOrEqual, 2..=2),
        "$size" => (O::Size, 1..=1),
        "$arrayElemAt" => (O::ArrayElementAt, 2..=2),
        "$in" => (O::In, 2..=2),
        "$abs" => (O::Abs, 1..=1),
        "$floor" => (O::Floor, 1..=1),
        "$ceil" => (O::Ceil, 1..=1),
        _ => return Err(Error::invalid(format!("Unrecognized expression '{name}'"))),
    };
    let arguments: Vec<&Bson> = match argument {
        Bson::Document(named) if operator == O::Condition => ["if", "then", "else"]
            .iter()
            .map(|part| {
                named.get(part).ok_or_else(|| Error::invalid(format!("Missing '{part}' parameter to $cond")))
            })
            .collect::<Result<_>>()?,
        Bson::Array(list) => list.iter().collect(),
        single => vec![single],
    };
    if !arity.contains(&arguments.len()) {
        return Err(Error::invalid(format!("Expression {name} takes another number of arguments")));
    }
    let arguments =
        arguments.into_iter().map(|argument| parse(argument, depth + 1)).collect::<Result<_>>()?;
    Ok(Expression::Operator(operator, arguments))
}

/// Returns the value at a path; through an array, the values of its documents.
pub(super) fn field(document: &Document, path: &[String]) -> Option<Bson> {
    let (first, rest) = path.split_first()?;
    field_of_value(document.get(first)?, rest)
}

fn field_of_value(value: &Bson, path: &[String]) -> Option<Bson> {
    match value {
        value if path.is_empty() => Some(value.clone()),
        Bson::Document(document) => field(document, path),
        Bson::Array(list) => {
            Some(Bson::Array(list.iter().filter_map(|element| field_of_value(element, path)).collect()))
        }
        _ => None,
    }
}

fn apply(operator: Operator, arguments: &[Expression], document: &Document) -> Result<Bson> {
    use Operator as O;
    // Evaluated only as far as needed.
    match operator {
        O::Condition => {
            let branch = if truthy(&arguments[0].evaluate(document)?) { 1 } else { 2 };
            return arguments[branch].evaluate(document);
        }
        O::And | O::Or => {
            for argument in arguments {
                if truthy(&argument.evaluate(document)?) == (operator == O::Or) {
                    return Ok(Bson::Boolean(operator == O::Or));
                }
            }
            return Ok(Bson::Boolean(operator == O::And));
        }
        O::IfNull => {
            let mut last = Bson::Null;
            for argument in arguments {
                last = argument.evaluate(document)?;
                if !matches!(last, Bson::Null | Bson::Undefined) {
                    break;
                }
            }
            return Ok(last);
        }
        _ => {}
    }
    let (mut values, mut length) = (Vec::with_capacity(arguments.len()), 0);
    for argument in arguments {
        let value = argument.evaluate(document)?;
        length += value_len(&value);
        // Twice, for a comparison of two documents of any length.
        check_document_len(length / 2)?;
        values.push(value);
    }
    let order = || compare_bson(&values[0], &values[1]);
    Ok(match operator {
        O::Equal => Bson::Boolean(order().is_eq()),
        O::NotEqual => Bson::Boolean(order().is_ne()),
        O::Greater => Bson::Boolean(order().is_gt()),
        O::GreaterOrEqual => Bson::Boolean(order().is_ge()),
        O::Less => Bson::Boolean(order().is_lt()),
        O::LessOrEqual => Bson::Boolean(order().is_le()),
        O::Not => Bson::Boolean(!truthy(&values[0])),
        O::In => match &values[1] {
            Bson::Array(list) => {
                Bson::Boolean(list.iter().any(|element| compare_bson(element, &values[0]).is_eq()))
            }
            _ => return Err(Error::invalid("$in requires an array as a second argument")),
        },
        O::Size => match &values[0] {
            Bson::Array(list) => Bson::Int32(i32::try_from(list.len()).unwrap_or(i32::MAX)),
            _ => return Err(Error::invalid("The argument to $size must be an array")),
        },
        O::ArrayElementAt => element_at(&values[0], &values[1])?,
        // Arithmetic and text with null are null.
        _ if values.iter().any(|value| matches!(value, Bson::Null | Bson::Undefined)) => match operator {
            O::ToLower | O::ToUpper => Bson::String(String::new()),
            _ => Bson::Null,
        },
        O::Add => values.iter().try_fold(Bson::Int32(0), |sum, value| add(&sum, value))?,
        O::Subtract => arithmetic(&values[0], &values[1], i64::checked_sub, |a, b| a - b)?,
        O::Multiply => values.iter().try_fold(Bson::Int32(1), |product, value| {
            arithmetic(&product, value, i64::checked_mul, |a, b| a * b)
        })?,
        O::Divide => {
            if float(&values[1]) == Some(0.0) {
                return Err(Error::invalid("can't $divide by zero"));
            }
            let real =
                |value| float(value).ok_or_else(|| Error::invalid("$divide only supports numeric types"));
            Bson::Double(real(&values[0])? / real(&values[1])?)
        }
        O::Mod => {
            if float(&values[1]) == Some(0.0) {
                return Err(Error::invalid("can't $mod by zero"));
            }
            arithmetic(&values[0], &values[1], i64::checked_rem, |a, b| a % b)?
        }
        O::Abs => match &values[0] {
            Bson::Double(value) => Bson::Double(value.abs()),
            value => arithmetic(value, &Bson::Int32(0), |a, _| a.checked_abs(), |a, _| a.abs())?,
        },
        O::Floor => round(&values[0], f64::floor)?,
        O::Ceil => round(&values[0], f64::ceil)?,
        O::Concat => {
            let texts = values
                .iter()
                .map(|value| value.as_str().ok_or_else(|| Error::invalid("$concat only supports strings")));
            let texts = texts.collect::<Result<Vec<_>>>()?;
            check_document_len(texts.iter().map(|text| text.len()).sum())?;
            Bson::String(texts.concat())
        }
        O::ToLower => Bson::String(text(&values[0])?.to_lowercase()),
        O::ToUpper => Bson::String(text(&values[0])?.to_uppercase()),
        O::ToString => Bson::String(text(&values[0])?),
        O::Condition | O::And | O::Or | O::IfNull => Bson::Null,
    })
}

fn element_at(list: &Bson, index: &Bson) -> Result<Bson> {
    match (list, crate::filter_integer(index)) {
        (Bson::Null | Bson::Undefined, _) => Ok(Bson::Null),
        (Bson::Array(list), Some(index)) => {
            let position = if index < 0 { list.len() as i64 + index } else { index };
            let element = usize::try_from(position).ok().and_then(|position| list.get(position));
            Ok(element.cloned().unwrap_or(Bson::Null))
        }
        _ => Err(Error::invalid("$arrayElemAt takes an array and an integer")),
    }
}

pub(super) fn truthy(value: &Bson) -> bool {
    match value {
        Bson::Boolean(value) => *value,
        Bson::Null | Bson::Undefined => false,
        value => float(value) != Some(0.0),
    }
}

/// Adds numbers; an int becomes a long, and a long a double, where it must.
pub(super) fn add(left: &Bson, right: &Bson) -> Result<Bson> {
    arithmetic(left, right, i64::checked_add, |left, right| left + right)
}

pub(super) fn float(value: &Bson) -> Option<f64> {
    match value {
        Bson::Int32(value) => Some(f64::from(*value)),
        Bson::Int64(value) => Some(*value as f64),
        Bson::Double(value) => Some(*value),
        Bson::Decimal128(value) => value.to_string().parse().ok(),
        _ => None,
    }
}

fn arithmetic(
    left: &Bson,
    right: &Bson,
    whole: impl Fn(i64, i64) -> Option<i64>,
    real: impl Fn(f64, f64) -> f64,
) -> Result<Bson> {
    let integer = |value: &Bson| match value {
        Bson::Int32(value) => Some(i64::from(*value)),
        Bson::Int64(value) => Some(*value),
        _ => None,
    };
    if let (Some(a), Some(b)) = (integer(left), integer(right))
        && let Some(result) = whole(a, b)
    {
        let small = matches!((left, right), (Bson::Int32(_), Bson::Int32(_)));
        return Ok(match i32::try_from(result) {
            Ok(result) if small => Bson::Int32(result),
            _ => Bson::Int64(result),
        });
    }
    match (float(left), float(right)) {
        (Some(a), Some(b)) => Ok(Bson::Double(real(a, b))),
        _ => Err(Error::invalid("arithmetic only supports numeric types")),
    }
}

fn round(value: &Bson, round: impl Fn(f64) -> f64) -> Result<Bson> {
    match value {
        Bson::Int32(_) | Bson::Int64(_) => Ok(value.clone()),
        value => match float(value) {
            Some(value) => Ok(Bson::Double(round(value))),
            None => Err(Error::invalid("rounding only supports numeric types")),
        },
    }
}

fn text(value: &Bson) -> Result<String> {
    Ok(match value {
        Bson::String(text) => text.clone(),
        Bson::ObjectId(id) => id.to_hex(),
        Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) | Bson::Boolean(_) => value.to_string(),
        _ => return Err(Error::invalid("the value cannot be converted to a string")),
    })
}
