//! One object over another: scalars and atomics from the second win, maps and
//! associative lists combine.

use super::typed::{ListShape, MapShape, Shape, TypeErrors, TypeRef, as_list, as_map};
use crate::managed_fields::PathElement;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Merges a configuration over a live object.
pub fn merge(live: &Value, config: &Value, of: TypeRef<'_>) -> Result<Value, TypeErrors> {
    Ok(match merge_changes(live, config, of)? {
        Merged::AsLive => live.clone(),
        Merged::Changed(merged) => merged,
        Merged::Gone => Value::Null,
    })
}

/// What merging makes of a live value. Most of what is applied is there already, and then
/// nothing is copied.
pub(crate) enum Merged {
    AsLive,
    Changed(Value),
    /// Two containers that together hold nothing.
    Gone,
}

impl Merged {
    /// A value that takes the live one's place, if it differs.
    fn replacing(live: &Value, value: Value) -> Self {
        if *live == value { Self::AsLive } else { Self::Changed(value) }
    }
}

pub(crate) fn merge_changes(live: &Value, config: &Value, of: TypeRef<'_>) -> Result<Merged, TypeErrors> {
    let shape = if config.is_null() { of.shape(Some(live)) } else { of.shape(Some(config)) };
    match shape {
        Shape::Scalar(_) => Ok(Merged::replacing(live, config.clone())),
        Shape::List(shape) => {
            let (before, items) =
                (as_list(Some(live)).unwrap_or_default(), as_list(Some(config)).unwrap_or_default());
            // Two empty ones are a leaf, which keeps null and [] apart.
            if shape.is_atomic() || (before.is_empty() && items.is_empty()) {
                return Ok(if live == config { Merged::AsLive } else { Merged::Changed(config.clone()) });
            }
            let merged = if same_places(before, items, shape) {
                merge_in_place(before, items, shape)?
            } else {
                Some(merge_lists(before, items, shape)?)
            };
            Ok(match merged {
                None => Merged::AsLive,
                Some(list) if list.is_empty() => Merged::Gone,
                Some(list) => Merged::replacing(live, Value::Array(list)),
            })
        }
        Shape::Map(shape) => {
            let (before, map) = (as_map(Some(live)), as_map(Some(config)));
            if shape.atomic || (before.is_none_or(Map::is_empty) && map.is_none_or(Map::is_empty)) {
                return Ok(if live == config { Merged::AsLive } else { Merged::Changed(config.clone()) });
            }
            merge_maps(before, map, shape)
        }
    }
}

fn merge_maps(
    live: Option<&Map<String, Value>>,
    config: Option<&Map<String, Value>>,
    shape: MapShape<'_>,
) -> Result<Merged, TypeErrors> {
    let Some(config) = config else { return Ok(Merged::AsLive) };
    let Some(live) = live else { return Ok(Merged::Changed(Value::Object(config.clone()))) };
    let mut changes = Vec::new();
    for (key, right) in config {
        let merged = match (live.get(key), shape.entry(key).of) {
            (Some(left), Some(of)) => {
                merge_changes(left, right, of).map_err(|error| error.at(&format_args!(".{key}")))?
            }
            (Some(left), None) => Merged::replacing(left, right.clone()),
            (None, _) => Merged::Changed(right.clone()),
        };
        match merged {
            Merged::AsLive => {}
            Merged::Changed(value) => changes.push((key, Some(value))),
            Merged::Gone => changes.push((key, None)),
        }
    }
    if changes.is_empty() {
        return Ok(Merged::AsLive);
    }
    // Copies around what changed, not what is replaced.
    // Maps iterate in key order, so the changes are sorted.
    let replaced = |key: &String| changes.binary_search_by(|(changed, _)| (*changed).cmp(key)).is_ok();
    let mut out: Map<String, Value> = live
        .iter()
        .filter(|(key, _)| !replaced(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    out.extend(changes.into_iter().filter_map(|(key, value)| Some((key.clone(), value?))));
    Ok(if out.is_empty() { Merged::Gone } else { Merged::Changed(Value::Object(out)) })
}

/// Returns whether a configuration has the live items in the live order, as a re-apply does.
fn same_places(live: &[Value], config: &[Value], shape: ListShape<'_>) -> bool {
    live.len() == config.len()
        && live.iter().zip(config).all(|(left, right)| shape.same_identity(left, right))
        && shape.first_repeat(config).is_none()
}

fn merge_in_place(
    live: &[Value],
    config: &[Value],
    shape: ListShape<'_>,
) -> Result<Option<Vec<Value>>, TypeErrors> {
    let mut changes: Vec<Merged> = Vec::with_capacity(live.len());
    for (left, right) in live.iter().zip(config) {
        changes.push(merge_changes(left, right, shape.item)?);
    }
    if changes.iter().all(|change| matches!(change, Merged::AsLive)) {
        return Ok(None);
    }
    let items = live.iter().zip(changes).filter_map(|(left, change)| match change {
        Merged::AsLive => Some(left.clone()),
        Merged::Changed(value) => Some(value),
        Merged::Gone => None,
    });
    Ok(Some(items.collect()))
}

/// An item that one list or both have.
fn merge_item(
    live: Option<&Value>,
    config: Option<&Value>,
    of: TypeRef<'_>,
) -> Result<Option<Value>, TypeErrors> {
    let (Some(live), Some(config)) = (live, config) else { return Ok(config.or(live).cloned()) };
    Ok(match merge_changes(live, config, of)? {
        Merged::AsLive => Some(live.clone()),
        Merged::Changed(value) => Some(value),
        Merged::Gone => None,
    })
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

fn index<'v>(
    items: &'v [Value],
    shape: ListShape<'_>,
    allow_repeats: bool,
) -> Result<Indexed<'v>, TypeErrors> {
    let mut indexed = Indexed { order: Vec::with_capacity(items.len()), items: BTreeMap::new() };
    for (position, item) in items.iter().enumerate() {
        let element =
            shape.identify(item).map_err(|why| TypeErrors::one(format!("element {position}: {why}")))?;
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

/// The configuration's order for what it names; items only the live list has stay beside the
/// neighbours they had.
fn merge_lists(live: &[Value], config: &[Value], shape: ListShape<'_>) -> Result<Vec<Value>, TypeErrors> {
    let right = index(config, shape, false)?;
    let left = index(live, shape, true)?;
    let mut shared = right.order.iter().filter(|element| left.items.contains_key(*element));
    let mut next_shared = shared.next();
    let mut taken: BTreeSet<&PathElement> = BTreeSet::new();
    let mut out = Vec::with_capacity(live.len().max(config.len()));
    let take = |element: &PathElement,
                out: &mut Vec<Value>,
                live_item: Option<&Value>,
                config_item: Option<&Value>| {
        let merged = merge_item(live_item, config_item, shape.item).map_err(|error| error.at(element))?;
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
            if right.items.contains_key(live_element) && next_shared.is_some_and(|next| next != live_element)
            {
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
