//! Merging of lists.

use super::error::{bad_set_order, bad_type, go_type, no_merge_key, rejected, unknown_directive};
use super::index::{KeyIndex, Positions};
use super::{DIRECTIVE, Object, Outcome, SET_ORDER, lookup_items, merge_map, without_directives};
use crate::go_text::display;
use crate::patch::PatchError;
use crate::schema::{PatchStrategy, Schema};
use serde_json::Value;
use std::collections::HashSet;

/// Merges lists with a `$setElementOrder` directive and removes them from the patch.
pub(super) fn merge_ordered_lists(original: &mut Object, patch: &mut Object, schema: &Schema) -> Outcome<()> {
    let directives: Vec<String> = patch.keys().filter(|key| key.starts_with(SET_ORDER)).cloned().collect();
    for directive in directives {
        let order = patch.remove(&directive).unwrap_or_default();
        let Value::Array(order) = order else { return bad_type("[]interface {}", &order) };
        let Some(key) = directive.strip_prefix(SET_ORDER).and_then(|rest| rest.strip_prefix('/')) else {
            return bad_set_order();
        };
        let list = |value: Option<&Value>| match value {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items.clone())),
            Some(other) => bad_type("[]interface {}", other),
        };
        let (current, wanted) = (list(original.get(key))?, list(patch.get(key))?);
        let (items, strategy) = lookup_items(schema, key)?;
        let merge_key = strategy.merge_key.as_deref().unwrap_or_default();
        check_order(wanted.as_deref().unwrap_or_default(), &order, merge_key)?;
        let server_order = current.clone().unwrap_or_default();
        let merged = match (current, wanted.clone()) {
            (None, None) => continue,
            (Some(current), None) => current,
            (None, Some(wanted)) => wanted.into_iter().filter_map(without_directives).collect(),
            (Some(current), Some(wanted)) if strategy.merge => {
                merge_list(current, wanted, items, strategy, false)?
            }
            (Some(_), Some(wanted)) => wanted,
        };
        let (ordered, server_only) = partition(merged, &order, merge_key)?;
        let of_maps = element_kind([&server_order, wanted.as_deref().unwrap_or_default()])? == Kind::Map;
        let key = key.to_owned();
        let result = interleave(ordered, server_only, &order, &server_order, merge_key, of_maps)?;
        original.insert(key.clone(), Value::Array(result));
        patch.remove(&key);
    }
    Ok(())
}

/// Checks that the patch's items are in the order of `$setElementOrder`.
fn check_order(wanted: &[Value], order: &[Value], merge_key: &str) -> Outcome<()> {
    if wanted.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut position = 0;
    for item in wanted {
        if let Value::Object(map) = item {
            // Directives are not part of the order.
            if map.contains_key(DIRECTIVE) {
                continue;
            }
        } else if !merge_key.is_empty() {
            return bad_type("map[string]interface {}", item);
        }
        loop {
            let Some(next) = order.get(position) else {
                return rejected(format!(
                    "The order in patch list:\n{}\n doesn't match {SET_ORDER} list:\n{}\n",
                    display(&Value::Array(wanted.to_vec())),
                    display(&Value::Array(order.to_vec()))
                ));
            };
            position += 1;
            if same(item, next, merge_key)? {
                break;
            }
        }
    }
    Ok(())
}

fn same(left: &Value, right: &Value, merge_key: &str) -> Outcome<bool> {
    if merge_key.is_empty() {
        return Ok(left == right);
    }
    Ok(key_of(left, merge_key)? == key_of(right, merge_key)?)
}

fn key_of<'v>(item: &'v Value, merge_key: &str) -> Outcome<&'v Value> {
    match item {
        Value::Object(map) => match map.get(merge_key) {
            Some(value) => Ok(value),
            None => no_merge_key(map, merge_key),
        },
        other => bad_type("map[string]interface {}", other),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Map,
    Scalar,
}

/// Returns the element type; an error if types differ.
fn element_kind<const N: usize>(lists: [&[Value]; N]) -> Outcome<Kind> {
    let mut found: Option<&Value> = None;
    for item in lists.iter().flat_map(|list| list.iter()) {
        match found {
            None if item.is_array() => {
                return Err(PatchError::DoesNotApply("lists of lists are not supported".to_owned()));
            }
            Some(first) if go_type(first) != go_type(item) => {
                let printed: Vec<_> =
                    lists.iter().map(|list| display(&Value::Array(list.to_vec()))).collect();
                return rejected(format!("list element types are not identical: [{}]", printed.join(" ")));
            }
            _ => found = Some(item),
        }
    }
    match found {
        Some(Value::Object(_)) => Ok(Kind::Map),
        Some(_) => Ok(Kind::Scalar),
        None => rejected("no elements in any of the given slices"),
    }
}

pub(super) fn merge_list(
    original: Vec<Value>,
    patch: Vec<Value>,
    items: &Schema,
    strategy: &PatchStrategy,
    deletes: bool,
) -> Outcome<Vec<Value>> {
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    let kind = element_kind([&original, &patch])?;
    if kind == Kind::Scalar {
        if deletes {
            let deleted: HashSet<&Value> = patch.iter().collect();
            return Ok(original.into_iter().filter(|item| !deleted.contains(item)).collect());
        }
        let mut seen = HashSet::with_capacity(original.len() + patch.len());
        let merged = original.iter().chain(&patch).filter(|item| seen.insert(*item)).cloned().collect();
        let (ordered, server_only) = partition(merged, &patch, "")?;
        return interleave(ordered, server_only, &patch, &original, "", false);
    }
    let Some(merge_key) = strategy.merge_key.as_deref() else {
        let name = items.go_type.map_or("map", |_| "struct");
        return rejected(format!("cannot merge lists without merge key for {name}"));
    };
    let (original, patch) = apply_directives(original, patch, merge_key)?;
    let mut merged = original.clone();
    let mut index = KeyIndex::new(&original, merge_key);
    for item in &patch {
        let Value::Object(item) = item else { continue };
        let Some(wanted) = item.get(merge_key) else { return no_merge_key(item, merge_key) };
        match index.position(wanted)? {
            Some(position) => {
                if let Value::Object(current) = std::mem::take(&mut merged[position]) {
                    merged[position] = Value::Object(merge_map(current, item.clone(), items)?);
                }
            }
            None => {
                index.positions.insert(wanted, merged.len());
                merged.push(Value::Object(item.clone()));
            }
        }
    }
    let (ordered, server_only) = partition(merged, &patch, merge_key)?;
    interleave(ordered, server_only, &patch, &original, merge_key, true)
}

/// Applies and removes the `{$patch: …}` items of a patch.
fn apply_directives(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    merge_key: &str,
) -> Outcome<(Vec<Value>, Vec<Value>)> {
    let mut plain = Vec::with_capacity(patch.len());
    let mut deleted = HashSet::new();
    let mut replace = false;
    for item in patch {
        let Some(directive) = item.get(DIRECTIVE) else {
            plain.push(item);
            continue;
        };
        let Value::Object(map) = &item else { continue };
        match directive.as_str() {
            Some("delete") => {
                let Some(key) = map.get(merge_key) else { return no_merge_key(map, merge_key) };
                deleted.insert(key.clone());
            }
            Some("replace") => replace = true,
            Some("merge") => return rejected("merging lists cannot yet be specified in the patch"),
            _ => return unknown_directive(directive, map),
        }
    }
    if !deleted.is_empty() {
        original.retain(|item| item.get(merge_key).is_none_or(|key| !deleted.contains(key)));
    }
    Ok(if replace { (plain, Vec::new()) } else { (original, plain) })
}

/// Partitions items into those of the order and the others.
fn partition(items: Vec<Value>, order: &[Value], merge_key: &str) -> Outcome<(Vec<Value>, Vec<Value>)> {
    let (mut ordered, mut others) = (Vec::new(), Vec::new());
    let values: HashSet<&Value> = if merge_key.is_empty() { order.iter().collect() } else { HashSet::new() };
    let keys = KeyIndex::new(order, merge_key);
    for item in items {
        let named = if merge_key.is_empty() {
            values.contains(&item)
        } else {
            keys.position(key_of(&item, merge_key)?)?.is_some()
        };
        if named { ordered.push(item) } else { others.push(item) }
    }
    Ok((ordered, others))
}

/// Merges the patch's items in the patch's order with the server's own in the server's order, so that
/// items known to the server keep their relative order.
fn interleave(
    mut ordered: Vec<Value>,
    mut server_only: Vec<Value>,
    order: &[Value],
    server_order: &[Value],
    merge_key: &str,
    of_maps: bool,
) -> Outcome<Vec<Value>> {
    if of_maps {
        for item in ordered.iter().chain(&server_only).chain(order).chain(server_order) {
            key_of(item, merge_key)?;
        }
    }
    let order = Positions::new(order, merge_key, of_maps);
    let server_order = Positions::new(server_order, merge_key, of_maps);
    ordered.sort_by_cached_key(|item| order.get(item));
    server_only.sort_by_cached_key(|item| server_order.get(item));
    let mut result = Vec::with_capacity(ordered.len() + server_only.len());
    let (mut left, mut right) = (server_only.into_iter().peekable(), ordered.into_iter().peekable());
    loop {
        let take_left = match (left.peek(), right.peek()) {
            (None, None) => return Ok(result),
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(one), Some(another)) => match (server_order.get(one), server_order.get(another)) {
                (Some(one), Some(another)) => one < another,
                _ => false,
            },
        };
        result.extend(if take_left { left.next() } else { right.next() });
    }
}
