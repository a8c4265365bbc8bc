//! Removal of fields.

use super::typed::{Atom, TypeRef};
use crate::managed_fields::{PathElement, Set};
use serde_json::{Map, Value};

/// Removes every path of the set. A container that becomes empty is removed too.
pub fn remove_items(value: &Value, remove: &Set, of: TypeRef<'_>) -> Value {
    walk(value, remove, of).unwrap_or(Value::Object(Map::new()))
}

fn walk(value: &Value, remove: &Set, of: TypeRef<'_>) -> Option<Value> {
    match of.atom(Some(value)) {
        Atom::Scalar(_) => Some(value.clone()),
        // Atomic: removing a part removes all of it.
        Atom::List(atom) if atom.is_atomic() => None,
        Atom::Map(atom) if atom.atomic => None,
        Atom::List(atom) => {
            let mut kept = Vec::new();
            for item in value.as_array()? {
                let node = atom.path_element(item).ok().and_then(|element| remove.node(&element));
                match node {
                    None => kept.push(item.clone()),
                    Some(node) if node.member => {}
                    Some(node) => kept.extend(walk(item, &node.children, atom.item)),
                }
            }
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        Atom::Map(atom) => {
            let mut kept = Map::new();
            for (key, item) in value.as_object()? {
                let item = match remove.node(&PathElement::field(key)) {
                    None => Some(item.clone()),
                    Some(node) if node.member => None,
                    Some(node) => match atom.entry(key).of {
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
