//! Comparison of two objects.

use super::typed::{
    Atom, ListAtom, MapAtom, ScalarKind, TypeErrors, TypeRef, as_list, as_map, validate_scalar,
};
use crate::managed_fields::{Filter, Node, OrderedValue, PathElement, Set};
use serde_json::{Map, Value};
use std::cmp::Ordering;

/// Removed, modified and added fields: disjoint, and all empty if the objects are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    pub removed: Set,
    pub modified: Set,
    pub added: Set,
}

impl Comparison {
    pub fn is_same(&self) -> bool {
        self.removed.is_empty() && self.modified.is_empty() && self.added.is_empty()
    }

    /// Applies a filter to all three sets.
    pub fn passed(self, filter: &Filter) -> Self {
        Self {
            removed: filter.apply(self.removed),
            modified: filter.apply(self.modified),
            added: filter.apply(self.added),
        }
    }

    /// Adds the change of an element and of its descendants to the parent's sets.
    fn push(&mut self, element: impl Fn() -> PathElement, change: Change, below: Self) {
        let put = |set: &mut Set, member: bool, children: Set| {
            if member || !children.is_empty() {
                set.push(Node { element: element(), member, children });
            }
        };
        put(&mut self.removed, change == Change::Removed, below.removed);
        put(&mut self.modified, change == Change::Modified, below.modified);
        put(&mut self.added, change == Change::Added, below.added);
    }
}

/// Change of a node itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    Added,
    Modified,
    Removed,
}

type Outcome = Result<(Change, Comparison), TypeErrors>;

/// Compares two versions of an object.
pub fn compare(old: &Value, new: &Value, of: TypeRef<'_>) -> Result<Comparison, TypeErrors> {
    walk(Some(old), Some(new), of).map(|(_, comparison)| comparison)
}

fn walk(old: Option<&Value>, new: Option<&Value>, of: TypeRef<'_>) -> Outcome {
    match (old, new) {
        (None, None) => Ok((Change::None, Comparison::default())),
        (Some(_), None) => walk_as(old, None, of.atom(old)).map(|(_, below)| (Change::Removed, below)),
        (None, Some(_)) => walk_as(None, new, of.atom(new)).map(|(_, below)| (Change::Added, below)),
        (Some(before), Some(after)) => {
            let (old_atom, new_atom) = (of.atom(old), of.atom(new));
            if std::mem::discriminant(&old_atom) == std::mem::discriminant(&new_atom) {
                return walk_as(old, new, new_atom);
            }
            // The type changed (a string became a map): old fields are removed, new ones added.
            if before.is_null() || after.is_null() {
                let atom = if before.is_null() { new_atom } else { old_atom };
                return walk_as(old, new, atom);
            }
            let (old_change, mut below) = walk_as(old, new, old_atom)?;
            let (new_change, below_new) = walk_as(old, new, new_atom)?;
            below.removed = below.removed.union(&below_new.removed);
            below.modified = below.modified.union(&below_new.modified);
            below.added = below.added.union(&below_new.added);
            Ok((if old_change == Change::None { new_change } else { old_change }, below))
        }
    }
}

fn leaf(old: Option<&Value>, new: Option<&Value>) -> (Change, Comparison) {
    let change = match (old, new) {
        (Some(old), Some(new)) if OrderedValue::compare(old, new) != Ordering::Equal => Change::Modified,
        (Some(_), Some(_)) | (None, None) => Change::None,
        (None, Some(_)) => Change::Added,
        (Some(_), None) => Change::Removed,
    };
    (change, Comparison::default())
}

fn walk_as(old: Option<&Value>, new: Option<&Value>, atom: Atom<'_>) -> Outcome {
    match atom {
        Atom::Scalar(kind) => walk_scalar(old, new, kind),
        Atom::List(atom) => {
            let (before, after) = (as_list(old).unwrap_or_default(), as_list(new).unwrap_or_default());
            if atom.is_atomic() || (before.is_empty() && after.is_empty()) {
                return Ok(leaf(old, new));
            }
            walk_list(before, after, atom).map(|below| (Change::None, below))
        }
        Atom::Map(atom) => {
            let (before, after) = (as_map(old), as_map(new));
            let empty = |map: Option<&Map<String, Value>>| map.is_none_or(Map::is_empty);
            if atom.atomic || (empty(before) && empty(after)) {
                return Ok(leaf(old, new));
            }
            walk_map(before, after, atom).map(|below| (Change::None, below))
        }
    }
}

fn walk_scalar(old: Option<&Value>, new: Option<&Value>, kind: ScalarKind) -> Outcome {
    let check = |value: Option<&Value>| value.map_or(Ok(()), |value| validate_scalar(value, kind));
    if let (Err(error), Err(_)) = (check(old), check(new)) {
        return Err(error);
    }
    Ok(leaf(old, new))
}

fn walk_map(
    old: Option<&Map<String, Value>>,
    new: Option<&Map<String, Value>>,
    atom: MapAtom<'_>,
) -> Result<Comparison, TypeErrors> {
    let mut comparison = Comparison::default();
    for (key, before, after) in zip(old, new) {
        let (change, below) = match atom.entry(key).of {
            Some(of) => walk(before, after, of).map_err(|error| error.at(&format_args!(".{key}")))?,
            None => leaf(before, after),
        };
        comparison.push(|| PathElement::field(key), change, below);
    }
    Ok(comparison)
}

/// Returns the keys of both maps in order, with their values.
fn zip<'a>(
    left: Option<&'a Map<String, Value>>,
    right: Option<&'a Map<String, Value>>,
) -> impl Iterator<Item = (&'a str, Option<&'a Value>, Option<&'a Value>)> {
    let mut left = left.into_iter().flatten().peekable();
    let mut right = right.into_iter().flatten().peekable();
    std::iter::from_fn(move || {
        let order = match (left.peek(), right.peek()) {
            (None, None) => return None,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((one, _)), Some((another, _))) => one.cmp(another),
        };
        match order {
            Ordering::Less => left.next().map(|(key, value)| (key.as_str(), Some(value), None)),
            Ordering::Greater => right.next().map(|(key, value)| (key.as_str(), None, Some(value))),
            Ordering::Equal => {
                let after = right.next().map(|(_, value)| value);
                left.next().map(|(key, before)| (key.as_str(), Some(before), after))
            }
        }
    })
}

fn walk_list(old: &[Value], new: &[Value], atom: ListAtom<'_>) -> Result<Comparison, TypeErrors> {
    if let Some(changed) = changed_in_place(old, new, atom) {
        let mut comparison = Comparison::default();
        for index in changed {
            let (before, after) = (&old[index], &new[index]);
            let element =
                atom.path_element(after).map_err(|why| TypeErrors::one(format!("element {index}: {why}")))?;
            let (change, below) =
                walk(Some(before), Some(after), atom.item).map_err(|error| error.at(&element))?;
            comparison.push(|| element.clone(), change, below);
        }
        return Ok(comparison);
    }
    let (old, new) = (by_identity(old, atom)?, by_identity(new, atom)?);
    let mut old = old.chunk_by(|one, another| one.0 == another.0).peekable();
    let mut new = new.chunk_by(|one, another| one.0 == another.0).peekable();
    let mut comparison = Comparison::default();
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return Ok(comparison),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(before), Some(after)) => before[0].0.cmp(&after[0].0),
        };
        let before = if order.is_le() { old.next() } else { None }.unwrap_or_default();
        let after = if order.is_ge() { new.next() } else { None }.unwrap_or_default();
        comparison.push_items(before, after, atom)?;
    }
}

/// List items with their path elements.
type Items<'v> = [(PathElement, &'v Value)];

impl Comparison {
    /// Adds the changes of the items with one path element.
    fn push_items(
        &mut self,
        before: &Items<'_>,
        after: &Items<'_>,
        atom: ListAtom<'_>,
    ) -> Result<(), TypeErrors> {
        let Some((element, _)) = before.first().or(after.first()) else { return Ok(()) };
        let item = |before: &Items<'_>, after: &Items<'_>| {
            let (before, after) = (before.first().map(|first| first.1), after.first().map(|first| first.1));
            walk(before, after, atom.item).map_err(|error| error.at(element))
        };
        let (change, below) = match (before, after) {
            ([] | [_], [] | [_]) => item(before, after)?,
            // Duplicates on both sides are one leaf.
            ([_, _, ..], [_, _, ..]) => {
                (if before == after { Change::None } else { Change::Modified }, Self::default())
            }
            ([_, _, ..], _) => {
                let below = item(&[], after)?.1;
                if !after.is_empty() {
                    self.push(|| element.clone(), Change::Added, Self::default());
                }
                (Change::Removed, below)
            }
            _ => {
                let below = item(before, &[])?.1;
                if !before.is_empty() {
                    self.push(|| element.clone(), Change::Removed, Self::default());
                }
                (Change::Added, below)
            }
        };
        self.push(|| element.clone(), change, below);
        Ok(())
    }
}

/// Returns the indices of items that changed in place; `None` if the lists have other items or another order, or if
/// a changed item has a duplicate. Most writes change items in place,
/// and then path elements need not be built for every item.
fn changed_in_place(old: &[Value], new: &[Value], atom: ListAtom<'_>) -> Option<Vec<usize>> {
    /// Each changed item is compared with all others; beyond this many, an index is cheaper.
    const CHANGED_MAX: usize = 16;
    if old.len() != new.len() {
        return None;
    }
    let mut changed = Vec::new();
    for (index, (before, after)) in old.iter().zip(new).enumerate() {
        if before == after {
            continue;
        }
        let repeats = |list: &[Value]| list.iter().filter(|item| atom.same_identity(item, after)).count() > 1;
        let many = changed.len() >= CHANGED_MAX;
        if many || !atom.same_identity(before, after) || repeats(old) || repeats(new) {
            return None;
        }
        changed.push(index);
    }
    Some(changed)
}

/// Returns items in the order of their path elements.
fn by_identity<'v>(
    items: &'v [Value],
    atom: ListAtom<'_>,
) -> Result<Vec<(PathElement, &'v Value)>, TypeErrors> {
    let element = |(index, item)| match atom.path_element(item) {
        Ok(element) => Ok((element, item)),
        Err(why) => Err(TypeErrors::one(format!("element {index}: {why}"))),
    };
    let mut items = items.iter().enumerate().map(element).collect::<Result<Vec<_>, _>>()?;
    items.sort_by(|one, another| one.0.cmp(&another.0));
    Ok(items)
}
