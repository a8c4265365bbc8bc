//! Literals of lists, maps and messages.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Evaluator;
use crate::cost::{NEW_LIST, NEW_MAP, NEW_MESSAGE};
use crate::error::EvalError;
use crate::functions::EvalResult;
use crate::planner::{MessageNode, Node};
use crate::value::{Key, Map, MessageValue, Value};

impl<'a> Evaluator<'_, '_, 'a> {
    pub(super) fn list(&mut self, elements: &'a [(Node, bool)]) -> EvalResult<'a> {
        self.charge(NEW_LIST)?;
        let mut values = Vec::with_capacity(elements.len());
        for (node, optional) in elements {
            let value = self.eval(node)?;
            if let Some(value) = present(value, *optional, || "list element".to_owned())? {
                values.push(value);
            }
        }
        Ok(Value::list(values))
    }

    pub(super) fn map(&mut self, entries: &'a [(Node, Node, bool)]) -> EvalResult<'a> {
        self.charge(NEW_MAP)?;
        let mut map = BTreeMap::new();
        for (key, value, optional) in entries {
            let key = self.eval(key)?;
            let value = self.eval(value)?;
            let key = map_key(&key)?;
            // Of entries with the same key the last one counts, also if it is written with `?` and has no value.
            match present(value, *optional, || format!("entry '{key}'"))? {
                Some(value) => map.insert(key, value),
                None => map.remove(&key),
            };
        }
        Ok(Value::Map(Map::from(map)))
    }

    pub(super) fn message(&mut self, node: &'a MessageNode) -> EvalResult<'a> {
        self.charge(NEW_MESSAGE)?;
        let mut fields: Vec<(&'a str, Value<'a>)> = Vec::with_capacity(node.fields.len());
        for (name, value, optional) in &node.fields {
            let value = self.eval(value)?;
            if let Some(value) = present(value, *optional, || format!("entry '{name}'"))? {
                fields.retain(|(set, _)| set != name);
                fields.push((name, value));
            }
        }
        Ok(Value::Message(Arc::new(MessageValue { message: node.message.clone(), fields })))
    }
}

/// The value of an element; `None` if it is written with `?` and has none.
fn present<'a>(
    value: Value<'a>,
    optional: bool,
    what: impl FnOnce() -> String,
) -> Result<Option<Value<'a>>, EvalError> {
    match (optional, value) {
        (false, value) => Ok(Some(value)),
        (true, Value::Optional(value)) => Ok(value.map(|value| Value::clone(&value))),
        (true, other) => Err(EvalError::Failed(format!(
            "cannot initialize optional {} from non-optional value {other}",
            what()
        ))),
    }
}

/// A value as the key of a new entry.
pub(super) fn map_key<'a>(value: &Value<'a>) -> Result<Key<'a>, EvalError> {
    match value {
        Value::Double(_) => Err(EvalError::failed("unsupported key type: double")),
        other => Key::lookup(other).ok_or_else(|| {
            EvalError::Failed(format!("unsupported key type: {}", other.type_of().runtime_name()))
        }),
    }
}

/// Adds an entry whose key must be new.
pub(super) fn insert<'a>(
    map: &mut BTreeMap<Key<'a>, Value<'a>>,
    key: Key<'a>,
    value: Value<'a>,
) -> Result<(), EvalError> {
    if map.contains_key(&key) {
        return Err(EvalError::Failed(format!("insert failed: key {key} already exists")));
    }
    map.insert(key, value);
    Ok(())
}
