//! Equality of values.
//!
//! Numbers compare by value whatever their type; values of different kinds are different, never an error. Lists of
//! the document compare as their schema says: sets without order, lists with keys by key. The left side decides,
//! as in Kubernetes.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use serde_json::Value as Json;

use super::fingerprint::{fingerprints, key_fingerprint};
use super::{List, Map, Value, compare};
use crate::error::EvalError;
use crate::schema::ListType;

/// Compares two values for equality. Fails only if a part of the document cannot be read.
pub(crate) fn equals(one: &Value<'_>, other: &Value<'_>) -> Result<bool, EvalError> {
    Ok(match (one, other) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(one), Value::Bool(other)) => one == other,
        (Value::String(one), Value::String(other)) => **one == **other,
        (Value::Bytes(one), Value::Bytes(other)) => one == other,
        (Value::Timestamp(one), Value::Timestamp(other)) => one == other,
        (Value::Duration(one), Value::Duration(other)) => one == other,
        (Value::List(one), Value::List(other)) => lists(one, other)?,
        (Value::Map(one), Value::Map(other)) => maps(one, other)?,
        (Value::Type(one), Value::Type(other)) => one.runtime_name() == other.runtime_name(),
        (Value::Optional(None), Value::Optional(None)) => true,
        (Value::Optional(Some(one)), Value::Optional(Some(other))) => equals(one, other)?,
        (Value::Message(one), Value::Message(other)) => {
            let mut same = one.message == other.message && one.fields.len() == other.fields.len();
            for (name, value) in &one.fields {
                same = same && other.get(name).map_or(Ok(false), |other| equals(value, other))?;
            }
            same
        }
        (Value::Opaque(one), Value::Opaque(other)) => one.is_same(other),
        (
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
        ) => compare::numbers(one, other).is_some_and(Ordering::is_eq),
        _ => false,
    })
}

fn lists(one: &List<'_>, other: &List<'_>) -> Result<bool, EvalError> {
    if one.len() != other.len() {
        return Ok(false);
    }
    if let (List::Json(one, _), List::Json(other, _)) = (one, other)
        && one == other
    {
        // The same JSON is equal however it is read, and unchanged parts of a document are what is mostly compared.
        return Ok(true);
    }
    match one.list_type() {
        ListType::Atomic => {
            for (one, other) in one.iter().zip(other.iter()) {
                if !equals(&one?, &other?)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        ListType::Set => Ok(fingerprints(one)? == fingerprints(other)?),
        ListType::Map(keys) => {
            let mut by_key = HashMap::new();
            for item in one.iter() {
                let item = item?;
                by_key.insert(key_fingerprint(&item, keys)?, item);
            }
            let mut met = HashSet::new();
            for item in other.iter() {
                let item = item?;
                let key = key_fingerprint(&item, keys)?;
                let Some(mine) = by_key.get(&key) else { return Ok(false) };
                if !equals(mine, &item)? {
                    return Ok(false);
                }
                met.insert(key);
            }
            Ok(met.len() == by_key.len())
        }
    }
}

fn maps(one: &Map<'_>, other: &Map<'_>) -> Result<bool, EvalError> {
    if one.len() != other.len() {
        return Ok(false);
    }
    if let (Map::Json(one_raw, _), Map::Json(other_raw, _)) = (one, other) {
        if one_raw == other_raw {
            return Ok(true);
        }
        if !undeclared_fields_are_equal(one, one_raw, other_raw) {
            return Ok(false);
        }
    }
    for (key, value) in one.entries()? {
        let Some(other) = other.get(&key).transpose()? else { return Ok(false) };
        if !equals(&value, &other)? {
            return Ok(false);
        }
    }
    Ok(true)
}

type RawMap = serde_json::Map<String, Json>;

/// Fields that the schema does not know are not visible to expressions, but a difference in them is a difference.
fn undeclared_fields_are_equal(map: &Map<'_>, one: &RawMap, other: &RawMap) -> bool {
    let Some(crate::types::Type::Object(schema)) = map.object_type() else { return true };
    let declared = |name: &String| {
        crate::escape::escape(name).is_some_and(|identifier| schema.field(&identifier).is_some())
    };
    one.iter().filter(|(name, _)| !declared(name)).all(|(name, value)| other.get(name) == Some(value))
}
