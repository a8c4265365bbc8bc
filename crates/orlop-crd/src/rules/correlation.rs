//! Correlation of values with their old values, and ratcheting.
//!
//! Ratcheting: an error about an unchanged value does not fail an update. The value compared is the current one if it is
//! correlatable with an old value, else its nearest correlatable ancestor.

use orlop_api::schema::{Field, Schema, is_unchanged};
use serde_json::Value;
use std::collections::HashMap;

/// A value and its correlated old value.
#[derive(Clone, Copy)]
struct Pair<'a> {
    new: &'a Value,
    old: &'a Value,
    schema: &'a Schema,
}

/// Correlation state of the current node.
#[derive(Clone, Copy, Default)]
pub(super) struct Correlation<'a> {
    current: Option<Pair<'a>>,
    parent: Option<Pair<'a>>,
}

impl<'a> Correlation<'a> {
    pub(super) fn root(new: &'a Value, old: Option<&'a Value>, schema: &'a Schema) -> Self {
        Self { current: old.map(|old| Pair { new, old, schema }), parent: None }
    }

    /// Returns the correlation of a field or map entry.
    pub(super) fn key(self, name: &str) -> Self {
        let Some(pair) = self.current else { return self };
        // Both objects were converted to one version, so their original values are unknown.
        if self.parent.is_none() && matches!(name, "apiVersion" | "kind") {
            return Self::default();
        }
        Self { current: pair.key(name), parent: Some(pair) }
    }

    /// Returns the correlation of a list item, given the old item with equal keys.
    pub(super) fn item(self, new: &'a Value, old: Option<&'a Value>) -> Self {
        let Some(pair) = self.current else { return self };
        let current = old.zip(pair.schema.items()).map(|(old, schema)| Pair { new, old, schema });
        Self { current, parent: Some(pair) }
    }

    /// Returns whether the value, or a correlated ancestor, is unchanged.
    pub(super) fn is_unchanged(self, known: &mut Unchanged) -> bool {
        self.current.or(self.parent).is_some_and(|pair| known.pair(pair))
    }
}

impl<'a> Pair<'a> {
    fn key(self, name: &str) -> Option<Pair<'a>> {
        let (new, old) = (self.new.as_object()?.get(name)?, self.old.as_object()?.get(name)?);
        Some(Pair { new, old, schema: field_schema(self.schema, name)? })
    }
}

fn field_schema<'s>(schema: &'s Schema, name: &str) -> Option<&'s Schema> {
    schema.field(name).map(Field::schema).or_else(|| schema.additional_properties.schema())
}

/// Memoized comparisons: many errors may ask about one large value.
#[derive(Default)]
pub(super) struct Unchanged {
    known: HashMap<*const Value, bool>,
}

impl Unchanged {
    fn pair(&mut self, pair: Pair<'_>) -> bool {
        *self
            .known
            .entry(std::ptr::from_ref(pair.new))
            .or_insert_with(|| is_unchanged(pair.new, pair.old, pair.schema))
    }
}
