//! Correlation of new and old values: items of an old list by their map keys, and equality for ratcheting.

use super::{Field, ListType, Schema};
use crate::go_text;
use serde_json::Value;
use std::collections::HashMap;

/// Old items of a list, correlated by map keys if the list is of type map. Items of other
/// lists are uncorrelatable.
#[derive(Debug, Default)]
pub struct CorrelatedItems<'v, 's> {
    keys: &'s [Box<str>],
    items: HashMap<String, &'v Value>,
}

impl<'v, 's> CorrelatedItems<'v, 's> {
    pub fn new(old: Option<&'v Value>, schema: &'s Schema) -> Self {
        match &schema.list_type {
            ListType::Map(keys) => Self::by_keys(old, keys),
            _ => Self::default(),
        }
    }

    pub fn by_keys(old: Option<&'v Value>, keys: &'s [Box<str>]) -> Self {
        let mut found = Self { keys, items: HashMap::new() };
        if keys.is_empty() {
            return found;
        }
        for item in old.and_then(Value::as_array).into_iter().flatten() {
            if let Some(identity) = found.identity(item) {
                // The first of several wins.
                found.items.entry(identity).or_insert(item);
            }
        }
        found
    }

    /// Returns the correlated old item.
    pub fn get(&self, item: &Value) -> Option<&'v Value> {
        if self.items.is_empty() {
            return None;
        }
        self.items.get(&self.identity(item)?).copied()
    }

    /// Returns the values of all keys as one string; `None` if one is missing or not a scalar.
    fn identity(&self, item: &Value) -> Option<String> {
        let item = item.as_object()?;
        let mut identity = String::new();
        for key in self.keys {
            match item.get(&**key)? {
                Value::Null | Value::Array(_) | Value::Object(_) => return None,
                Value::String(text) => identity.push_str(&go_text::quote(text)),
                scalar => identity.push_str(&go_text::display(scalar)),
            }
            identity.push('\0');
        }
        Some(identity)
    }
}

/// Returns whether a value is unchanged, ignoring the order of lists of type map. Values without a schema are
/// never unchanged.
pub fn is_unchanged(new: &Value, old: &Value, schema: &Schema) -> bool {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => {
            let same = |(name, new): (&String, &Value)| {
                let schema =
                    schema.field(name).map(Field::schema).or_else(|| schema.additional_properties.schema());
                old.get(name).zip(schema).is_some_and(|(old, schema)| is_unchanged(new, old, schema))
            };
            new.len() == old.len() && new.iter().all(same)
        }
        (Value::Array(items), Value::Array(before)) if items.len() == before.len() => {
            let (ListType::Map(_), Some(inner)) = (&schema.list_type, schema.items()) else {
                return new == old;
            };
            let before = CorrelatedItems::new(Some(old), schema);
            items.iter().all(|item| before.get(item).is_some_and(|old| is_unchanged(item, old, inner)))
        }
        _ => new == old,
    }
}
