//! Merge of typed values: scalars and atomics of the second win, maps and
//! associative lists are merged.

use super::typed::{Atom, ListAtom, MapAtom, TypeErrors, TypeRef, as_list, as_map};
use crate::managed_fields::PathElement;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Merges a configuration into a live object.
pub fn merge(live: &Value, config: &Value, of: TypeRef<'_>) -> Result<Value, TypeErrors> {
    Ok(match merge_changes(live, config, of)? {
        Merged::Unchanged => live.clone(),
        Merged::Changed(merged) => merged,
        Merged::Removed => Value::Null,
    })
}

/// Result of merging into a live value. Most applied values are unchanged, and then
/// nothing is copied.
pub(crate) enum Merged {
    Unchanged,
    Changed(Value),
    /// Both containers are empty.
    Removed,
}

impl Merged {
    /// Replaces the live value, if it differs.
    fn replacing(live: &Value, value: Value) -> Self {
        if *live == value { Self::Unchanged } else { Self::Changed(value) }
    }
}

pub(crate) fn merge_changes(live: &Value, config: &Value, of: TypeRef<'_>) -> Result<Merged, TypeErrors> {
    let atom = if config.is_null() { of.atom(Some(live)) } else { of.atom(Some(config)) };
    match atom {
        Atom::Scalar(_) => Ok(Merged::replacing(live, config.clone())),
        Atom::List(atom) => {
            let (before, items) =
                (as_list(Some(live)).unwrap_or_default(), as_list(Some(config)).unwrap_or_default());
            // Two empty containers are a leaf, which distinguishes null from [].
            if atom.is_atomic() || (before.is_empty() && items.is_empty()) {
                return Ok(if live == config { Merged::Unchanged } else { Merged::Changed(config.clone()) });
            }
            let merged = if same_places(before, items, atom) {
                merge_in_place(before, items, atom)?
            } else {
                Some(merge_lists(before, items, atom)?)
            };
            Ok(match merged {
                None => Merged::Unchanged,
                Some(list) if list.is_empty() => Merged::Removed,
                Some(list) => Merged::replacing(live, Value::Array(list)),
            })
        }
        Atom::Map(atom) => {
            let (before, map) = (as_map(Some(live)), as_map(Some(config)));
            if atom.atomic || (before.is_none_or(Map::is_empty) && map.is_none_or(Map::is_empty)) {
                return Ok(if live == config { Merged::Unchanged } else { Merged::Changed(config.clone()) });
            }
            merge_maps(before, map, atom)
        }
    }
}

fn merge_maps(
    live: Option<&Map<String, Value>>,
    config: Option<&Map<String, Value>>,
    atom: MapAtom<'_>,
) -> Result<Merged, TypeErrors> {
    let Some(config) = config else { return Ok(Merged::Unchanged) };
    let Some(live) = live else { return Ok(Merged::Changed(Value::Object(config.clone()))) };
    let mut changes = Vec::new();
    for (key, right) in config {
        let merged = match (live.get(key), atom.entry(key).of) {
            (Some(left), Some(of)) => {
                merge_changes(left, right, of).map_err(|error| error.at(&format_args!(".{key}")))?
            }
            (Some(left), None) => Merged::replacing(left, right.clone()),
            (None, _) => Merged::Changed(right.clone()),
        };
        match merged {
            Merged::Unchanged => {}
            Merged::Changed(value) => changes.push((key, Some(value))),
            Merged::Removed => changes.push((key, None)),
        }
    }
    if changes.is_empty() {
        return Ok(Merged::Unchanged);
    }
    // Copies unchanged entries only.
    // Maps iterate in key order, so the changes are sorted.
    let replaced = |key: &String| changes.binary_search_by(|(changed, _)| (*changed).cmp(key)).is_ok();
    let mut out: Map<String, Value> = live
        .iter()
        .filter(|(key, _)| !replaced(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    out.extend(changes.into_iter().filter_map(|(key, value)| Some((key.clone(), value?))));
    Ok(if out.is_empty() { Merged::Removed } else { Merged::Changed(Value::Object(out)) })
}

/// Returns whether a configuration has the live items in the live order, as a re-apply does.
fn same_places(live: &[Value], config: &[Value], atom: ListAtom<'_>) -> bool {
    live.len() == config.len()
        && live.iter().zip(config).all(|(left, right)| atom.same_identity(left, right))
        && atom.first_duplicate(config).is_none()
}

fn merge_in_place(
    live: &[Value],
    config: &[Value],
    atom: ListAtom<'_>,
) -> Result<Option<Vec<Value>>, TypeErrors> {
    let mut changes: Vec<Merged> = Vec::with_capacity(live.len());
    for (left, right) in live.iter().zip(config) {
        changes.push(merge_changes(left, right, atom.item)?);
    }
    if changes.iter().all(|change| matches!(change, Merged::Unchanged)) {
        return Ok(None);
    }
    let items = live.iter().zip(changes).filter_map(|(left, change)| match change {
        Merged::Unchanged => Some(left.clone()),
        Merged::Changed(value) => Some(value),
        Merged::Removed => None,
    });
    Ok(Some(items.collect()))
}

/// Merges an item of either list or both.
fn merge_item(
    live: Option<&Value>,
    config: Option<&Value>,
    of: TypeRef<'_>,
) -> Result<Option<Value>, TypeErrors> {
    let (Some(live), Some(config)) = (live, config) else { return Ok(config.or(live).cloned()) };
    Ok(match merge_changes(live, config, of)? {
        Merged::Unchanged => Some(live.clone()),
        Merged::Changed(value) => Some(value),
        Merged::Removed => None,
    })
}

/// Items of a list by path element, and the elements in order.
struct Indexed<'v> {
    order: Vec<PathElement>,
    /// `None` for duplicates of the live list, which are kept or replaced but not merged.
    items: BTreeMap<PathElement, Option<&'v Value>>,
}

impl<'v> Indexed<'v> {
    fn item(&self, element: &PathElement) -> Option<&'v Value> {
        self.items.get(element).copied().flatten()
    }
}

fn index<'v>(items: &'v [Value], atom: ListAtom<'_>, allow_repeats: bool) -> Result<Indexed<'v>, TypeErrors> {
    let mut indexed = Indexed { order: Vec::with_capacity(items.len()), items: BTreeMap::new() };
    for (position, item) in items.iter().enumerate() {
        let element =
            atom.path_element(item).map_err(|why| TypeErrors::one(format!("element {position}: {why}")))?;
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

/// Merges lists in the configuration's order; items that only the live list has stay next to
/// their neighbours.
fn merge_lists(live: &[Value], config: &[Value], atom: ListAtom<'_>) -> Result<Vec<Value>, TypeErrors> {
    let right = index(config, atom, false)?;
    let left = index(live, atom, true)?;
    let mut shared = right.order.iter().filter(|element| left.items.contains_key(*element));
    let mut next_shared = shared.next();
    let mut taken: BTreeSet<&PathElement> = BTreeSet::new();
    let mut out = Vec::with_capacity(live.len().max(config.len()));
    let take = |element: &PathElement,
                out: &mut Vec<Value>,
                live_item: Option<&Value>,
                config_item: Option<&Value>| {
        let merged = merge_item(live_item, config_item, atom.item).map_err(|error| error.at(element))?;
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
