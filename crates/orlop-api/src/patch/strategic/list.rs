//! Merging of lists.

use super::error::{bad_set_order, bad_type, go_type, no_merge_key, rejected, unknown_directive};
use super::index::{KeyIndex, Positions};
use super::{DIRECTIVE, Object, Outcome, SET_ORDER, lookup_items, merge_map, without_directives};
use crate::go_text::display;
use crate::patch::PatchError;
use crate::schema::{PatchStrategy, Schema};
use serde_json::Value;
use std::collections::{HashMap, HashSet};

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
        check_named(&merged, &order, merge_key)?;
        let of_maps = element_kind([&server_order, wanted.as_deref().unwrap_or_default()])? == Kind::Map;
        let ranks = ranks(&merged, &order, &server_order, merge_key, of_maps)?;
        original.insert(key.to_owned(), Value::Array(interleave(merged, &ranks)));
        patch.remove(key);
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
        let merged: Vec<Value> =
            original.iter().chain(&patch).filter(|item| seen.insert(*item)).cloned().collect();
        let ranks = ranks(&merged, &patch, &original, "", false)?;
        return Ok(interleave(merged, &ranks));
    }
    let Some(merge_key) = strategy.merge_key.as_deref() else {
        let name = items.go_type.map_or("map", |_| "struct");
        return rejected(format!("cannot merge lists without merge key for {name}"));
    };
    let (original, patch) = apply_directives(original, patch, merge_key)?;
    merge_maps(original, patch, items, merge_key)
}

/// Merges lists of maps by their merge key. Only keys are hashed, each once: lists can have tens of thousands of items.
fn merge_maps(
    original: Vec<Value>,
    patch: Vec<Value>,
    items: &Schema,
    merge_key: &str,
) -> Outcome<Vec<Value>> {
    let Targets { mut ranks, of_patch, failed } = Targets::of(&original, &patch, merge_key);
    let mut merged = original;
    for (item, target) in patch.into_iter().zip(of_patch) {
        match (merged.get_mut(target), item) {
            (Some(current), Value::Object(item)) => {
                if let Value::Object(map) = std::mem::take(current) {
                    *current = Value::Object(merge_map(map, item, items)?);
                }
            }
            (_, item) => merged.push(item),
        }
    }
    if let Some(error) = failed {
        return Err(error);
    }
    for item in &merged {
        key_of(item, merge_key)?;
    }
    // Of items with equal keys, the first decides.
    for position in 0..ranks.len() {
        if let Some(first) = ranks[position].server {
            ranks[position].order = ranks[first].order;
        }
    }
    Ok(interleave(merged, &ranks))
}

/// Positions of a patch's items in the merged list: those of the original with equal keys, or new ones after it.
struct Targets {
    /// Ranks of the items of the merged list. The order is known of the first of equal keys only.
    ranks: Vec<Rank>,
    of_patch: Vec<usize>,
    /// Reason why the items of the patch after `of_patch` cannot be merged.
    failed: Option<PatchError>,
}

impl Targets {
    fn of(original: &[Value], patch: &[Value], merge_key: &str) -> Self {
        let mut first = HashMap::with_capacity(original.len() + patch.len());
        let mut targets = Self {
            ranks: Vec::with_capacity(original.len() + patch.len()),
            of_patch: Vec::with_capacity(patch.len()),
            failed: None,
        };
        for (position, item) in original.iter().enumerate() {
            let server = item.get(merge_key).map(|key| *first.entry(key).or_insert(position));
            targets.ranks.push(Rank { server, order: None });
        }
        for (order, item) in patch.iter().enumerate() {
            let key = match key_of(item, merge_key) {
                Ok(key) => key,
                Err(error) => {
                    targets.failed = Some(error);
                    break;
                }
            };
            let target = *first.entry(key).or_insert(targets.ranks.len());
            if target == targets.ranks.len() {
                targets.ranks.push(Rank::default());
            }
            targets.ranks[target].order.get_or_insert(order);
            targets.of_patch.push(target);
        }
        targets
    }
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

/// The place of an item in a merged list.
#[derive(Clone, Copy, Default)]
struct Rank {
    /// Position in the patch, or in its `$setElementOrder`.
    order: Option<usize>,
    /// Position in the server's list.
    server: Option<usize>,
}

/// Checks that items can be looked up in an order.
fn check_named(items: &[Value], order: &[Value], merge_key: &str) -> Outcome<()> {
    if merge_key.is_empty() {
        return Ok(());
    }
    let keys = KeyIndex::new(order, merge_key);
    items.iter().try_for_each(|item| keys.position(key_of(item, merge_key)?).map(drop))
}

fn ranks(
    items: &[Value],
    order: &[Value],
    server_order: &[Value],
    merge_key: &str,
    of_maps: bool,
) -> Outcome<Vec<Rank>> {
    if of_maps {
        for item in items.iter().chain(order).chain(server_order) {
            key_of(item, merge_key)?;
        }
    }
    let order = Positions::new(order, merge_key, of_maps);
    let server_order = Positions::new(server_order, merge_key, of_maps);
    Ok(items.iter().map(|item| Rank { order: order.get(item), server: server_order.get(item) }).collect())
}

/// Merges the patch's items in the patch's order with the server's own in the server's order, so that
/// items known to the server keep their relative order.
fn interleave(mut items: Vec<Value>, ranks: &[Rank]) -> Vec<Value> {
    let (mut ordered, mut server_only): (Vec<usize>, Vec<usize>) =
        (0..items.len()).partition(|item| ranks[*item].order.is_some());
    ordered.sort_by_key(|item| ranks[*item].order);
    server_only.sort_by_key(|item| ranks[*item].server);
    let mut result = Vec::with_capacity(items.len());
    let (mut left, mut right) = (server_only.into_iter().peekable(), ordered.into_iter().peekable());
    loop {
        let next = match (left.peek(), right.peek()) {
            (Some(one), Some(another)) => match (ranks[*one].server, ranks[*another].server) {
                (Some(one), Some(another)) if one < another => left.next(),
                _ => right.next(),
            },
            (Some(_), None) => left.next(),
            (None, _) => right.next(),
        };
        let Some(next) = next else { return result };
        result.push(std::mem::take(&mut items[next]));
    }
}
