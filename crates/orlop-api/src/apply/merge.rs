//! One object over another: scalars and atomics from the second win, maps and
//! associative lists combine.

use super::compare::zip;
use super::typed::{ListShape, MapShape, Shape, TypeErrors, TypeRef, as_list, as_map};
use crate::managed_fields::PathElement;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Merges a configuration over a live object.
pub fn merge(live: &Value, config: &Value, of: TypeRef<'_>) -> Result<Value, TypeErrors> {
    walk(Some(live), Some(config), of).map(|merged| merged.unwrap_or(Value::Null))
}

fn walk(left: Option<&Value>, right: Option<&Value>, of: TypeRef<'_>) -> Result<Option<Value>, TypeErrors> {
    // What only one side has is taken as it is: merging with nothing changes nothing.
    let (Some(_), Some(config)) = (left, right) else { return Ok(right.or(left).cloned()) };
    let shape = if config.is_null() { of.shape(left) } else { of.shape(right) };
    match shape {
        Shape::Scalar(_) => Ok(Some(config.clone())),
        Shape::List(shape) => {
            let (live, items) = (as_list(left).unwrap_or_default(), as_list(right).unwrap_or_default());
            // Two empty ones are a leaf, which keeps null and [] apart.
            if shape.is_atomic() || (live.is_empty() && items.is_empty()) {
                return Ok(Some(config.clone()));
            }
            let merged = merge_lists(live, items, shape)?;
            Ok((!merged.is_empty()).then_some(Value::Array(merged)))
        }
        Shape::Map(shape) => {
            let (live, map) = (as_map(left), as_map(right));
            if shape.atomic || (live.is_none_or(Map::is_empty) && map.is_none_or(Map::is_empty)) {
                return Ok(Some(config.clone()));
            }
            let merged = merge_maps(live, map, shape)?;
            Ok((!merged.is_empty()).then_some(Value::Object(merged)))
        }
    }
}

fn merge_maps(
    live: Option<&Map<String, Value>>,
    config: Option<&Map<String, Value>>,
    shape: MapShape<'_>,
) -> Result<Map<String, Value>, TypeErrors> {
    let mut out = Map::new();
    for (key, left, right) in zip(live, config) {
        let merged = match shape.entry(key).of {
            Some(of) => walk(left, right, of).map_err(|error| error.at(&format_args!(".{key}")))?,
            None => right.or(left).cloned(),
        };
        if let Some(merged) = merged {
            out.insert(key.to_owned(), merged);
        }
    }
    Ok(out)
}

/// The items of a list by identity, and their identities in order.
struct Indexed<'v> {
    order: Vec<PathElement>,
    /// A repeated item of the live list is none: it is not merged with, only kept or replaced.
    items: BTreeMap<PathElement, Option<&'v Value>>,
}

impl<'v> Indexed<'v> {
    fn item(&self, element: &PathElement) -> Option<&'v Value> {
        self.items.get(element).copied().flatten()
    }
}

fn index<'v>(items: &'v [Value], shape: ListShape<'_>, allow_repeats: bool) -> Result<Indexed<'v>, TypeErrors> {
    let mut indexed = Indexed { order: Vec::with_capacity(items.len()), items: BTreeMap::new() };
    for (position, item) in items.iter().enumerate() {
        let element = shape.identify(item).map_err(|why| TypeErrors::one(format!("element {position}: {why}")))?;
        match indexed.items.entry(element.clone()) {
            std::collections::btree_map::Entry::Vacant(vacant) => drop(vacant.insert(Some(item))),
            std::collections::btree_map::Entry::Occupied(_) if !allow_repeats => {
                return Err(TypeErrors::one(format!("duplicate entries for key {element}")));
            }
            std::collections::btree_map::Entry::Occupied(mut occupied) => drop(occupied.insert(None)),
        }
        indexed.order.push(element);
    }
    Ok(indexed)
}

/// Whether a short list has no repeats; longer ones are told by their index.
fn unique(items: &[Value], shape: ListShape<'_>) -> bool {
    const SHORT: usize = 64;
    items.len() <= SHORT && items.iter().enumerate().all(|(index, item)| !items[..index].iter().any(|other| shape.same_identity(item, other)))
}

/// The configuration's order for what it names; items only the live list has stay beside the
/// neighbours they had.
fn merge_lists(live: &[Value], config: &[Value], shape: ListShape<'_>) -> Result<Vec<Value>, TypeErrors> {
    // The common re-apply names the items that are there, in the order they have.
    if live.len() == config.len() && live.iter().zip(config).all(|(left, right)| shape.same_identity(left, right)) && unique(config, shape) {
        let merged = live.iter().zip(config).map(|(left, right)| walk(Some(left), Some(right), shape.item));
        return merged.filter_map(Result::transpose).collect();
    }
    let right = index(config, shape, false)?;
    let left = index(live, shape, true)?;
    let mut shared = right.order.iter().filter(|element| left.items.contains_key(*element));
    let mut next_shared = shared.next();
    let mut taken: BTreeSet<&PathElement> = BTreeSet::new();
    let mut out = Vec::with_capacity(live.len().max(config.len()));
    let take = |element: &PathElement, out: &mut Vec<Value>, live_item: Option<&Value>, config_item: Option<&Value>| {
        let merged = walk(live_item, config_item, shape.item).map_err(|error| error.at(element))?;
        out.extend(merged);
        Ok::<(), TypeErrors>(())
    };
    let (mut l, mut r) = (0, 0);
    while l < left.order.len() || r < right.order.len() {
        if let (Some(live_element), Some(config_element)) = (left.order.get(l), right.order.get(r)) {
            if live_element == config_element {
                taken.insert(config_element);
                take(config_element, &mut out, left.item(live_element), right.item(config_element))?;
                (l, r) = (l + 1, r + 1);
                next_shared = shared.next();
                continue;
            }
            // A shared item, but another shared one comes first.
            if right.items.contains_key(live_element) && next_shared.is_some_and(|next| next != live_element) {
                l += 1;
                continue;
            }
        }
        if let Some(live_element) = left.order.get(l) {
            if !right.items.contains_key(live_element) {
                take(live_element, &mut out, live.get(l), None)?;
                l += 1;
                continue;
            }
            if taken.contains(live_element) {
                l += 1;
            }
        }
        if let Some(config_element) = right.order.get(r) {
            taken.insert(config_element);
            take(config_element, &mut out, left.item(config_element), right.item(config_element))?;
            r += 1;
            if next_shared == Some(config_element) {
                next_shared = shared.next();
            }
        }
    }
    Ok(out)
}
