//! Matching of filters against raw documents.

use bson::raw::{RawBsonRef, RawDocument};

use super::{Comparison, Filter, Predicate, ValueSet};
use crate::key::{compare, encode, same_class};

/// Sets up to this size are searched value by value; larger ones by encoded key.
const LINEAR_MAX: usize = 8;

pub(super) fn matches(filter: &Filter, document: &RawDocument) -> bool {
    match filter {
        Filter::And(parts) => parts.iter().all(|part| matches(part, document)),
        Filter::Or(parts) => parts.iter().any(|part| matches(part, document)),
        Filter::Nor(parts) => !parts.iter().any(|part| matches(part, document)),
        Filter::Field(path, predicate) => {
            evaluate(predicate, &mut |visit| path.visit(document, &mut |value| visit(value)))
        }
    }
}

type Visit<'v, 'a> = &'v mut dyn FnMut(Option<RawBsonRef<'a>>) -> bool;

/// Evaluates a predicate over values, which `values` passes to its argument until that returns true.
fn evaluate<'a>(predicate: &Predicate, values: &mut dyn FnMut(Visit<'_, 'a>) -> bool) -> bool {
    match predicate {
        Predicate::Not(inner) => !evaluate(inner, values),
        Predicate::All(parts) => parts.iter().all(|part| evaluate(part, values)),
        Predicate::Exists(expected) => values(&mut |value| value.is_some()) == *expected,
        Predicate::Size(size) => values(&mut |value| match value {
            Some(RawBsonRef::Array(array)) => array.into_iter().count() == *size,
            _ => false,
        }),
        Predicate::ElementFilter(filter) => any_element(values, &mut |element| match element {
            RawBsonRef::Document(document) => matches(filter, document),
            _ => false,
        }),
        Predicate::Element(parts) => any_element(values, &mut |element| {
            parts.iter().all(|part| evaluate(part, &mut |visit| visit(Some(element))))
        }),
        _ => values(&mut |value| match value {
            None => is_satisfied(predicate, RawBsonRef::Null, true),
            Some(value) if is_satisfied(predicate, value, false) => true,
            Some(RawBsonRef::Array(array)) => {
                array.into_iter().flatten().any(|element| is_satisfied(predicate, element, false))
            }
            Some(_) => false,
        }),
    }
}

fn any_element<'a>(
    values: &mut dyn FnMut(Visit<'_, 'a>) -> bool,
    matches: &mut dyn FnMut(RawBsonRef<'a>) -> bool,
) -> bool {
    values(&mut |value| match value {
        Some(RawBsonRef::Array(array)) => array.into_iter().flatten().any(&mut *matches),
        _ => false,
    })
}

/// Evaluates a predicate on one value. A missing value is passed as null.
fn is_satisfied(predicate: &Predicate, value: RawBsonRef<'_>, missing: bool) -> bool {
    match predicate {
        Predicate::Equal(operand) => compare(value, operand.as_raw_bson_ref()).is_eq(),
        Predicate::Compare(comparison, operand) => compares(*comparison, value, operand.as_raw_bson_ref()),
        Predicate::In(set) => set.contains(value),
        Predicate::Regex(pattern) => match value {
            RawBsonRef::String(text) | RawBsonRef::Symbol(text) => pattern.is_match(text),
            _ => false,
        },
        Predicate::Type(types) => !missing && types.contains(&(value.element_type() as u8)),
        Predicate::Modulo(divisor, remainder) => whole(value)
            // `i64::MIN % -1` overflows; its remainder is 0.
            .is_some_and(|value| value.checked_rem(*divisor).unwrap_or(0) == *remainder),
        // Handled by `evaluate`, which sees all values of the path.
        Predicate::Not(_)
        | Predicate::All(_)
        | Predicate::Exists(_)
        | Predicate::Size(_)
        | Predicate::ElementFilter(_)
        | Predicate::Element(_) => false,
    }
}

fn compares(comparison: Comparison, value: RawBsonRef<'_>, operand: RawBsonRef<'_>) -> bool {
    if !same_class(value, operand) {
        // MinKey and MaxKey compare with everything.
        return match operand {
            RawBsonRef::MinKey => matches!(comparison, Comparison::Greater | Comparison::GreaterOrEqual),
            RawBsonRef::MaxKey => matches!(comparison, Comparison::Less | Comparison::LessOrEqual),
            _ => false,
        };
    }
    let order = compare(value, operand);
    // NaN is equal to itself and otherwise not comparable.
    if is_nan(value) != is_nan(operand) {
        return false;
    }
    match comparison {
        Comparison::Greater => order.is_gt(),
        Comparison::GreaterOrEqual => order.is_ge(),
        Comparison::Less => order.is_lt(),
        Comparison::LessOrEqual => order.is_le(),
    }
}

fn is_nan(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Double(value) => value.is_nan(),
        RawBsonRef::Decimal128(_) => crate::key::is_nan(value),
        _ => false,
    }
}

fn whole(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(value) => Some(i64::from(value)),
        RawBsonRef::Int64(value) => Some(value),
        RawBsonRef::Double(value) if value.is_finite() && value.abs() < 9e18 => Some(value as i64),
        _ => None,
    }
}

impl ValueSet {
    fn contains(&self, value: RawBsonRef<'_>) -> bool {
        let listed = if self.values.len() <= LINEAR_MAX {
            self.values.iter().any(|operand| compare(value, operand.as_raw_bson_ref()).is_eq())
        } else {
            self.keys.binary_search(&encode(value)).is_ok()
        };
        listed
            || match value {
                RawBsonRef::String(text) | RawBsonRef::Symbol(text) => {
                    self.patterns.iter().any(|pattern| pattern.is_match(text))
                }
                _ => false,
            }
    }
}
