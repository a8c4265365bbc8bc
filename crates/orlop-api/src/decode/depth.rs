//! Depth of values.

use super::{DEPTH_MAX, DecodeError};
use serde_json::Value;

/// Checks that a value is within [`DEPTH_MAX`]. Does not recurse deeper than that.
pub fn check_depth(value: &Value) -> Result<(), DecodeError> {
    fn within(value: &Value, left: usize) -> bool {
        match value {
            Value::Array(items) => left > 0 && items.iter().all(|item| within(item, left - 1)),
            Value::Object(map) => left > 0 && map.values().all(|item| within(item, left - 1)),
            _ => true,
        }
    }
    if within(value, DEPTH_MAX) { Ok(()) } else { Err(DecodeError::TooDeep) }
}

/// Returns the depth of a value: 0 for a scalar, 1 for a list of scalars.
pub fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Counts the nodes of a value, unless there are more than `max`.
pub fn count_nodes(value: &Value, max: usize) -> Option<usize> {
    let mut count = 0;
    let mut pending = vec![value];
    while let Some(next) = pending.pop() {
        count += 1;
        match next {
            Value::Array(items) => pending.extend(items),
            Value::Object(map) => pending.extend(map.values()),
            _ => {}
        }
        if count + pending.len() > max {
            return None;
        }
    }
    Some(count)
}
