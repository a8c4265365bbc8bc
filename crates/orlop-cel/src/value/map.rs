//! Maps and objects: a piece of the document, or entries the expression made.
//!
//! An object (a schema with properties) and a map (additionalProperties) differ in three ways: an object's fields go
//! by escaped names, only the declared ones exist, and a field that is null counts as absent.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value as Json;

use super::{Text, Value};
use crate::error::EvalError;
use crate::escape::escape;
use crate::schema::{Schema, Shape};
use crate::types::Type;

/// A map value.
#[derive(Clone, Debug)]
pub enum Map<'a> {
    /// Entries of the document, read as they are reached; the schema is the object's or map's own.
    Json(&'a serde_json::Map<String, Json>, Option<&'a Schema>),
    /// Entries made by the expression.
    Values(Arc<BTreeMap<Key<'a>, Value<'a>>>),
}

/// A key of a map. Integers and unsigned integers of the same value are the same key.
#[derive(Clone, Debug)]
pub enum Key<'a> {
    /// `true`, `false`
    Bool(bool),
    /// An integer
    Int(i64),
    /// An unsigned integer
    Uint(u64),
    /// Text
    String(Text<'a>),
}

impl<'a> Key<'a> {
    /// A value as the key to look up; `None` if no map can hold it. Doubles find the integers they equal.
    pub(crate) fn lookup(value: &Value<'a>) -> Option<Self> {
        match value {
            Value::Bool(value) => Some(Self::Bool(*value)),
            Value::Int(value) => Some(Self::Int(*value)),
            Value::Uint(value) => Some(Self::Uint(*value)),
            Value::String(text) => Some(Self::String(text.clone())),
            Value::Double(value) => crate::number::double_to_int(*value)
                .filter(|whole| *whole as f64 == *value)
                .map(Self::Int)
                .or_else(|| {
                    let whole = crate::number::double_to_uint(*value)?;
                    (whole as f64 == *value).then_some(Self::Uint(whole))
                }),
            _ => None,
        }
    }

    /// The key as a value.
    pub fn to_value(&self) -> Value<'a> {
        match self {
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(value) => Value::Int(*value),
            Self::Uint(value) => Value::Uint(*value),
            Self::String(text) => Value::String(text.clone()),
        }
    }
}

impl Ord for Key<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for Key<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Key<'_> {}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Uint(value) => write!(f, "{value}"),
            Self::String(text) => f.write_str(text),
        }
    }
}

impl<'a> From<BTreeMap<Key<'a>, Value<'a>>> for Map<'a> {
    fn from(entries: BTreeMap<Key<'a>, Value<'a>>) -> Self {
        Self::Values(Arc::new(entries))
    }
}

impl<'a> Map<'a> {
    /// Number of entries. An object counts the fields it has, declared or not.
    pub fn len(&self) -> usize {
        match self {
            Self::Json(entries, _) => entries.len(),
            Self::Values(entries) => entries.len(),
        }
    }

    /// Returns whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value under a key.
    pub fn get(&self, key: &Key<'_>) -> Option<Result<Value<'a>, EvalError>> {
        match self {
            Self::Values(entries) => entries.get(key as &dyn Ranked).cloned().map(Ok),
            Self::Json(entries, schema) => {
                let Key::String(name) = key else { return None };
                json_entry(entries, *schema, name)
            }
        }
    }

    /// The value under the name it has in JSON, escaped or not.
    pub(crate) fn get_json_name(&self, name: &str) -> Option<Result<Value<'a>, EvalError>> {
        let identifier = escape(name);
        let is_object = matches!(self, Self::Json(_, Some(schema)) if is_object(schema));
        let name = if is_object { identifier.as_deref()? } else { name };
        self.get(&Key::String(Text::from(name)))
    }

    /// The keys, in order; of an object, the declared fields that it has.
    pub fn keys(&self) -> Vec<Key<'a>> {
        match self {
            Self::Values(entries) => entries.keys().cloned().collect(),
            Self::Json(entries, Some(schema)) if is_object(schema) => {
                let Shape::Object { fields, .. } = &schema.node.shape else { return Vec::new() };
                let present =
                    fields.iter().filter(|(_, field)| !field.alias && entries.contains_key(&field.json_name));
                present.map(|(name, _)| Key::String(Text::Borrowed(name))).collect()
            }
            Self::Json(entries, _) => entries.keys().map(|name| Key::String(Text::Borrowed(name))).collect(),
        }
    }

    /// The keys with their values, in order.
    pub fn entries(&self) -> Result<Vec<(Key<'a>, Value<'a>)>, EvalError> {
        match self {
            Self::Values(entries) => {
                Ok(entries.iter().map(|(key, value)| (key.clone(), value.clone())).collect())
            }
            Self::Json(..) => {
                let read = |key: Key<'a>| self.get(&key).map(|value| value.map(|value| (key, value)));
                self.keys().into_iter().filter_map(read).collect()
            }
        }
    }

    /// The object's type, if it is an object.
    pub(crate) fn object_type(&self) -> Option<Type> {
        match self {
            Self::Json(_, Some(schema)) if is_object(schema) => Some(Type::Object(Schema::clone(schema))),
            _ => None,
        }
    }
}

fn is_object(schema: &Schema) -> bool {
    matches!(schema.node.shape, Shape::Object { .. })
}

fn json_entry<'a>(
    entries: &'a serde_json::Map<String, Json>,
    schema: Option<&'a Schema>,
    name: &str,
) -> Option<Result<Value<'a>, EvalError>> {
    match schema {
        Some(schema) if is_object(schema) => {
            let Some(field) = schema.field_entry(name) else {
                let found = entries.get(name).filter(|value| schema.is_open() && !value.is_null());
                return found.map(|value| Value::from_json(value, None));
            };
            match entries.get(&field.json_name)? {
                Json::Null => None,
                value => Some(Value::from_json(value, Some(&field.schema))),
            }
        }
        _ => entries.get(name).map(|value| Value::from_json(value, schema.and_then(Schema::elements))),
    }
}

/// A key's place in the order of keys, whatever the key borrows from: what look-ups compare.
trait Ranked {
    /// Bools, then numbers, then strings.
    fn rank(&self) -> (u8, i128, &str);
}

impl Ranked for Key<'_> {
    fn rank(&self) -> (u8, i128, &str) {
        match self {
            Self::Bool(value) => (0, i128::from(*value), ""),
            Self::Int(value) => (1, i128::from(*value), ""),
            Self::Uint(value) => (1, i128::from(*value), ""),
            Self::String(text) => (2, 0, text),
        }
    }
}

impl<'a: 'b, 'b> Borrow<dyn Ranked + 'b> for Key<'a> {
    fn borrow(&self) -> &(dyn Ranked + 'b) {
        self
    }
}

impl Ord for dyn Ranked + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for dyn Ranked + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn Ranked + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}

impl Eq for dyn Ranked + '_ {}
