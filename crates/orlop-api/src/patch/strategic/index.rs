//! Indexes of list items, so that merging lists is linear.

use super::Outcome;
use super::error::rejected;
use serde_json::Value;
use std::collections::HashMap;

/// Positions of a list's items by merge key; the first of equal keys wins.
pub(super) struct KeyIndex<'v> {
    positions: HashMap<&'v Value, usize>,
    /// The first item that is not a map. Kubernetes searches item by item and fails when it gets there.
    not_a_map: Option<usize>,
}

impl<'v> KeyIndex<'v> {
    pub(super) fn new(items: &'v [Value], merge_key: &str) -> Self {
        let mut index = Self { positions: HashMap::with_capacity(items.len()), not_a_map: None };
        for (position, item) in items.iter().enumerate() {
            let Value::Object(map) = item else {
                index.not_a_map = Some(position);
                break;
            };
            if let Some(key) = map.get(merge_key) {
                index.positions.entry(key).or_insert(position);
            }
        }
        index
    }

    pub(super) fn position(&self, key: &Value) -> Outcome<Option<usize>> {
        match (self.positions.get(key), self.not_a_map) {
            (Some(position), _) => Ok(Some(*position)),
            (None, Some(position)) => rejected(format!("value for key {position} is not a map")),
            (None, None) => Ok(None),
        }
    }
}

/// First position of each item of a list, by merge key or, for scalars, by value.
pub(super) struct Positions<'v> {
    positions: HashMap<Option<&'v Value>, usize>,
    merge_key: &'v str,
    of_maps: bool,
}

impl<'v> Positions<'v> {
    pub(super) fn new(items: &'v [Value], merge_key: &'v str, of_maps: bool) -> Self {
        let mut positions = HashMap::with_capacity(items.len());
        for (position, item) in items.iter().enumerate() {
            positions.entry(Self::key(item, merge_key, of_maps)).or_insert(position);
        }
        Self { positions, merge_key, of_maps }
    }

    fn key<'i>(item: &'i Value, merge_key: &str, of_maps: bool) -> Option<&'i Value> {
        if of_maps { item.get(merge_key) } else { Some(item) }
    }

    pub(super) fn get(&self, item: &Value) -> Option<usize> {
        self.positions.get(&Self::key(item, self.merge_key, self.of_maps)).copied()
    }
}
