//! An object without some of its fields.

use super::typed::{Shape, TypeRef};
use crate::managed_fields::{PathElement, Set};
use serde_json::{Map, Value};

/// Removes every path of the set. A container that loses everything in it goes too.
pub fn remove_items(value: &Value, remove: &Set, of: TypeRef<'_>) -> Value {
    walk(value, remove, of).unwrap_or(Value::Object(Map::new()))
}

fn walk(value: &Value, remove: &Set, of: TypeRef<'_>) -> Option<Value> {
    match of.shape(Some(value)) {
        Shape::Scalar(_) => Some(value.clone()),
        // One leaf: something inside was to go, so all of it does.
        Shape::List(shape) if shape.is_atomic() => None,
        Shape::Map(shape) if shape.atomic => None,
        Shape::List(shape) => {
            let mut kept = Vec::new();
            for item in value.as_array()? {
                let node = shape.identify(item).ok().and_then(|element| remove.node(&element));
                match node {
                    None => kept.push(item.clone()),
                    Some(node) if node.member => {}
                    Some(node) => kept.extend(walk(item, &node.children, shape.item)),
                }
            }
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        Shape::Map(shape) => {
            let mut kept = Map::new();
            for (key, item) in value.as_object()? {
                let item = match remove.node(&PathElement::field(key)) {
                    None => Some(item.clone()),
                    Some(node) if node.member => None,
                    Some(node) => match shape.entry(key).of {
                        Some(of) => walk(item, &node.children, of),
                        None => Some(item.clone()),
                    },
                };
                if let Some(item) = item {
                    kept.insert(key.clone(), item);
                }
            }
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
    }
}
