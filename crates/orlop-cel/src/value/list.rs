//! Lists: a slice of the document, or values the expression made.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value as Json;

use super::fingerprint::{Fingerprints, fingerprint, key_fingerprint};
use super::{Value, equals};
use crate::error::EvalError;
use crate::schema::{ListType, Schema, Shape};

/// A list value.
#[derive(Clone, Debug)]
pub enum List<'a> {
    /// Elements of the document, read as they are reached; the schema is the list's own.
    Json(&'a [Json], Option<&'a Schema>),
    /// Elements made by the expression.
    Values(Arc<Vec<Value<'a>>>),
}

impl<'a> From<Vec<Value<'a>>> for List<'a> {
    fn from(values: Vec<Value<'a>>) -> Self {
        Self::Values(Arc::new(values))
    }
}

impl<'a> List<'a> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::Json(items, _) => items.len(),
            Self::Values(values) => values.len(),
        }
    }

    /// Returns whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at an index; `None` beyond the end.
    pub fn get(&self, index: usize) -> Option<Result<Value<'a>, EvalError>> {
        match self {
            Self::Json(items, schema) => {
                items.get(index).map(|item| Value::from_json(item, schema.and_then(Schema::elements)))
            }
            Self::Values(values) => values.get(index).cloned().map(Ok),
        }
    }

    /// The elements in order.
    pub fn iter(&self) -> impl Iterator<Item = Result<Value<'a>, EvalError>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// All elements as values.
    pub fn to_values(&self) -> Result<Vec<Value<'a>>, EvalError> {
        self.iter().collect()
    }

    /// Returns whether an element equals `wanted`.
    pub(crate) fn contains(&self, wanted: &Value<'_>) -> Result<bool, EvalError> {
        for item in self.iter() {
            if equals(&item?, wanted)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the list type.
    pub(crate) fn list_type(&self) -> &'a ListType {
        match self {
            Self::Json(_, Some(schema)) => match &schema.node.shape {
                Shape::List { list_type, .. } => list_type,
                _ => &ListType::Atomic,
            },
            _ => &ListType::Atomic,
        }
    }

    /// `self + other`: the union of sets, the merge of lists with keys, else one after the other.
    pub(crate) fn concat(self, other: &Self) -> Result<Self, EvalError> {
        let list_type = self.list_type();
        let mut values = match self {
            // An accumulator without other owners grows in place.
            Self::Values(values) => Arc::try_unwrap(values).unwrap_or_else(|shared| Vec::clone(&shared)),
            json => json.to_values()?,
        };
        match list_type {
            ListType::Atomic => {
                for item in other.iter() {
                    values.push(item?);
                }
            }
            ListType::Set => {
                let known = values.iter().map(fingerprint).collect::<Result<Fingerprints, _>>()?;
                for item in other.iter() {
                    let item = item?;
                    if !known.contains(&fingerprint(&item)?) {
                        values.push(item);
                    }
                }
            }
            ListType::Map(keys) => merge(&mut values, other, keys)?,
        }
        Ok(Self::from(values))
    }
}

/// Overwrites elements of `values` with those of `other` that have the same keys, and appends the rest.
fn merge<'a>(values: &mut Vec<Value<'a>>, other: &List<'a>, keys: &[String]) -> Result<(), EvalError> {
    let mut known = HashMap::new();
    for (index, value) in values.iter().enumerate() {
        known.insert(key_fingerprint(value, keys)?, index);
    }
    for item in other.iter() {
        let item = item?;
        match known.get(&key_fingerprint(&item, keys)?) {
            Some(index) => values[*index] = item,
            None => values.push(item),
        }
    }
    Ok(())
}
