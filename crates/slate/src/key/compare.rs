//! Comparison of BSON values in MongoDB's order.

use std::cmp::Ordering;

use bson::raw::{RawArray, RawBsonRef, RawDocument};

use super::{class_of, number::Number};

/// Compares two values over all types.
///
/// A malformed element of a nested value ends the comparison there: documents are validated when they
/// enter the engine.
pub fn compare(left: RawBsonRef<'_>, right: RawBsonRef<'_>) -> Ordering {
    use RawBsonRef as V;
    match (left, right) {
        (V::Int32(a), V::Int32(b)) => a.cmp(&b),
        (V::String(a) | V::Symbol(a), V::String(b) | V::Symbol(b)) => a.as_bytes().cmp(b.as_bytes()),
        (V::ObjectId(a), V::ObjectId(b)) => a.bytes().cmp(&b.bytes()),
        (V::Boolean(a), V::Boolean(b)) => a.cmp(&b),
        (V::DateTime(a), V::DateTime(b)) => a.timestamp_millis().cmp(&b.timestamp_millis()),
        (V::Timestamp(a), V::Timestamp(b)) => (a.time, a.increment).cmp(&(b.time, b.increment)),
        (V::Document(a), V::Document(b)) => compare_documents(a, b),
        (V::Array(a), V::Array(b)) => compare_arrays(a, b),
        (V::Binary(a), V::Binary(b)) => {
            (a.bytes.len(), u8::from(a.subtype), a.bytes).cmp(&(b.bytes.len(), u8::from(b.subtype), b.bytes))
        }
        (V::RegularExpression(a), V::RegularExpression(b)) => {
            (a.pattern.as_str(), a.options.as_str()).cmp(&(b.pattern.as_str(), b.options.as_str()))
        }
        (V::JavaScriptCode(a), V::JavaScriptCode(b)) => a.cmp(b),
        (V::JavaScriptCodeWithScope(a), V::JavaScriptCodeWithScope(b)) => {
            a.code.cmp(b.code).then_with(|| compare_documents(a.scope, b.scope))
        }
        // The crate keeps the fields of a DBPointer private; its encoding is the order.
        (V::DbPointer(_), V::DbPointer(_)) => super::encode(left).cmp(&super::encode(right)),
        _ => match (Number::of(left), Number::of(right)) {
            (Some(a), Some(b)) => a.compare(b),
            _ => class_of(left).cmp(&class_of(right)),
        },
    }
}

/// Returns true if two values belong to the same class, so that `$lt` and the like apply.
pub fn same_class(left: RawBsonRef<'_>, right: RawBsonRef<'_>) -> bool {
    class_of(left) == class_of(right)
}

fn compare_documents(left: &RawDocument, right: &RawDocument) -> Ordering {
    let (mut left, mut right) = (left.iter().flatten(), right.iter().flatten());
    loop {
        match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some((left_key, left)), Some((right_key, right))) => {
                let order = class_of(left)
                    .cmp(&class_of(right))
                    .then_with(|| left_key.as_str().as_bytes().cmp(right_key.as_str().as_bytes()))
                    .then_with(|| compare(left, right));
                if order.is_ne() {
                    return order;
                }
            }
        }
    }
}

fn compare_arrays(left: &RawArray, right: &RawArray) -> Ordering {
    let (mut left, mut right) = (left.into_iter().flatten(), right.into_iter().flatten());
    loop {
        match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(left), Some(right)) => {
                let order = compare(left, right);
                if order.is_ne() {
                    return order;
                }
            }
        }
    }
}
