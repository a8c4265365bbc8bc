//! Strategic merge patch, for built-in kinds.
//!
//! Like a merge patch, but the type declares which lists are merged and by which key. Directives:
//! `$patch` replaces or deletes, `$retainKeys` drops all other
//! keys, `$deleteFromPrimitiveList/x` removes values, `$setElementOrder/x` orders.

mod error;
mod index;
mod list;

use super::PatchError;
use crate::decode;
use crate::go_text::quote;
use crate::schema::{PatchStrategy, Schema, Type};
use error::{bad_retain_keys, rejected, unknown_directive};
use list::{merge_list, merge_ordered_lists};
use serde_json::{Map, Value};
use std::collections::HashSet;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";
const SET_ORDER: &str = "$setElementOrder";

type Object = Map<String, Value>;
type Outcome<T> = Result<T, PatchError>;

/// Applies a strategic merge patch to an object of a built-in kind.
pub fn strategic_merge_patch(object: &Value, patch: &Value, schema: &Schema) -> Outcome<Value> {
    let (Value::Object(object), Value::Object(patch)) = (object, patch) else {
        return Err(PatchError::Malformed("invalid JSON document".to_owned()));
    };
    let merged = Value::Object(merge_map(object.clone(), patch.clone(), schema)?);
    decode::check_depth(&merged)?;
    Ok(merged)
}

/// Returns the schema and patch strategy of a field.
fn lookup<'s>(schema: &'s Schema, key: &str) -> Outcome<(&'s Schema, &'s PatchStrategy)> {
    if let Some(field) = schema.field(key) {
        return Ok((field.schema(), &field.patch));
    }
    match (schema.go_type, schema.kind) {
        (Some(name), _) => {
            rejected(format!("unable to find api field in struct {name} for the json field {}", quote(key)))
        }
        (None, Type::Object) => {
            rejected("merging an object in json but data type is not struct, instead is: map")
        }
        (None, kind) => rejected(format!(
            "merging an object in json but data type is not struct, instead is: {}",
            kind.name()
        )),
    }
}

fn lookup_items<'s>(schema: &'s Schema, key: &str) -> Outcome<(&'s Schema, &'s PatchStrategy)> {
    let (list, strategy) = lookup(schema, key)?;
    match list.items() {
        Some(items) if items.kind == Type::Array => rejected("unexpected slice of slice"),
        Some(items) => Ok((items, strategy)),
        None => rejected("expected slice or array type, but got: struct"),
    }
}

fn merge_map(mut original: Object, mut patch: Object, schema: &Schema) -> Outcome<Object> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Object::new()),
            _ => unknown_directive(directive, &patch),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    merge_ordered_lists(&mut original, &mut patch, schema)?;
    for (key, value) in patch {
        let (key, deletes) = match key.strip_prefix(DELETE_FROM_LIST) {
            Some(rest) => match rest.strip_prefix('/') {
                Some(key) => (key.to_owned(), true),
                None => {
                    return Err(PatchError::Malformed("invalid patch format of primitive list".to_owned()));
                }
            },
            None => (key, false),
        };
        if value.is_null() {
            original.remove(&key);
            continue;
        }
        let Some(current) = original.get_mut(&key) else {
            if !deletes {
                insert_clean(&mut original, key, value);
            }
            continue;
        };
        match (std::mem::take(current), value) {
            (Value::Object(current), Value::Object(value)) => {
                let (inner, strategy) = lookup(schema, &key)?;
                let merged = if strategy.replace { value } else { merge_map(current, value, inner)? };
                original.insert(key, Value::Object(merged));
            }
            (Value::Array(current), Value::Array(value)) => {
                let (items, strategy) = lookup_items(schema, &key)?;
                let merged = if strategy.merge || deletes {
                    merge_list(current, value, items, strategy, deletes)?
                } else {
                    value
                };
                original.insert(key, Value::Array(merged));
            }
            // Types differ: the patch's value replaces, unless it only deletes.
            (before, _) if deletes => *current = before,
            (_, value @ (Value::Object(_) | Value::Array(_))) => {
                original.remove(&key);
                insert_clean(&mut original, key, value);
            }
            (_, scalar) => *current = scalar,
        }
    }
    Ok(original)
}

/// Inserts a new value without its nulls and directives.
fn insert_clean(original: &mut Object, key: String, mut value: Value) {
    drop_nulls(&mut value);
    if let Some(value) = without_directives(value) {
        original.insert(key, value);
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => map.retain(|_, item| {
            drop_nulls(item);
            !item.is_null()
        }),
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(DIRECTIVE) => None,
        Value::Object(map) => {
            let kept = map.into_iter().filter_map(|(key, item)| Some((key, without_directives(item)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        scalar => Some(scalar),
    }
}

fn retain_keys(original: &mut Object, patch: &mut Object) -> Outcome<()> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let Value::Array(keys) = keys else { return bad_retain_keys() };
    let keys: HashSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let retained = |key: &str| keys.contains(key);
    for (key, value) in &*patch {
        let directs = key.starts_with(DELETE_FROM_LIST) || key.starts_with(SET_ORDER);
        if !value.is_null() && !directs && !retained(key) {
            return bad_retain_keys();
        }
    }
    original.retain(|key, _| retained(key));
    Ok(())
}
