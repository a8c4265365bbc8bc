//! The fields an object has.

use super::typed::{ListShape, MapShape, Shape, TypeErrors, TypeRef};
use crate::managed_fields::{Node, PathElement, Set};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Every leaf, list item and map entry of an object.
pub fn to_field_set(value: &Value, of: TypeRef<'_>) -> Result<Set, TypeErrors> {
    walk(value, of).map(|(_, set)| set)
}

/// Returns whether the node is a leaf, and the set below it.
fn walk(value: &Value, of: TypeRef<'_>) -> Result<(bool, Set), TypeErrors> {
    match of.shape(Some(value)) {
        Shape::Scalar(_) => Ok((true, Set::new())),
        Shape::List(shape) if shape.is_atomic() => Ok((true, Set::new())),
        Shape::Map(shape) if shape.atomic => Ok((true, Set::new())),
        Shape::List(shape) => {
            let items = value.as_array().map_or(&[][..], Vec::as_slice);
            walk_list(items, shape).map(|set| (false, set))
        }
        Shape::Map(shape) => match value.as_object() {
            Some(map) => walk_map(map, shape).map(|set| (false, set)),
            None => Ok((false, Set::new())),
        },
    }
}

fn walk_map(map: &Map<String, Value>, shape: MapShape<'_>) -> Result<Set, TypeErrors> {
    let mut set = Set::new();
    for (key, item) in map {
        let entry = shape.entry(key);
        // What the schema does not know is refused by validation; here it is a leaf.
        let (leaf, children) = match entry.of {
            Some(of) => walk(item, of).map_err(|error| error.at(&format_args!(".{key}")))?,
            None => (true, Set::new()),
        };
        let empty = item.is_null() || item.as_object().is_some_and(Map::is_empty);
        set.push(Node {
            element: PathElement::field(key),
            member: leaf || empty || !entry.declared,
            children,
        });
    }
    Ok(set)
}

/// Items of the same identity are one leaf together.
fn walk_list(items: &[Value], shape: ListShape<'_>) -> Result<Set, TypeErrors> {
    let mut by_identity: BTreeMap<PathElement, Option<&Value>> = BTreeMap::new();
    for (index, item) in items.iter().enumerate() {
        let element =
            shape.identify(item).map_err(|why| TypeErrors::one(format!("element {index}: {why}")))?;
        by_identity.entry(element).and_modify(|repeated| *repeated = None).or_insert(Some(item));
    }
    let mut set = Set::new();
    for (element, item) in by_identity {
        let children = match item {
            Some(item) => walk(item, shape.item).map_err(|error| error.at(&element))?.1,
            None => Set::new(),
        };
        set.push(Node { element, member: true, children });
    }
    Ok(set)
}
