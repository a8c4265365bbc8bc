//! Field sets of objects.

use super::typed::{Atom, ListAtom, MapAtom, TypeErrors, TypeRef};
use crate::managed_fields::{Node, PathElement, Set};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Returns the set of leaves, list items and map entries of an object.
pub fn to_field_set(value: &Value, of: TypeRef<'_>) -> Result<Set, TypeErrors> {
    walk(value, of).map(|(_, set)| set)
}

/// Returns whether the node is a leaf, and the set below it.
fn walk(value: &Value, of: TypeRef<'_>) -> Result<(bool, Set), TypeErrors> {
    match of.atom(Some(value)) {
        Atom::Scalar(_) => Ok((true, Set::new())),
        Atom::List(atom) if atom.is_atomic() => Ok((true, Set::new())),
        Atom::Map(atom) if atom.atomic => Ok((true, Set::new())),
        Atom::List(atom) => {
            let items = value.as_array().map_or(&[][..], Vec::as_slice);
            walk_list(items, atom).map(|set| (false, set))
        }
        Atom::Map(atom) => match value.as_object() {
            Some(map) => walk_map(map, atom).map(|set| (false, set)),
            None => Ok((false, Set::new())),
        },
    }
}

fn walk_map(map: &Map<String, Value>, atom: MapAtom<'_>) -> Result<Set, TypeErrors> {
    let mut set = Set::new();
    for (key, item) in map {
        let entry = atom.entry(key);
        // Validation refuses undeclared fields; here they are leaves.
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

/// Builds the set of a list. Duplicate items are one leaf.
fn walk_list(items: &[Value], atom: ListAtom<'_>) -> Result<Set, TypeErrors> {
    let mut by_identity: BTreeMap<PathElement, Option<&Value>> = BTreeMap::new();
    for (index, item) in items.iter().enumerate() {
        let element =
            atom.path_element(item).map_err(|why| TypeErrors::one(format!("element {index}: {why}")))?;
        by_identity.entry(element).and_modify(|repeated| *repeated = None).or_insert(Some(item));
    }
    let mut set = Set::new();
    for (element, item) in by_identity {
        let children = match item {
            Some(item) => walk(item, atom.item).map_err(|error| error.at(&element))?.1,
            None => Set::new(),
        };
        set.push(Node { element, member: true, children });
    }
    Ok(set)
}
