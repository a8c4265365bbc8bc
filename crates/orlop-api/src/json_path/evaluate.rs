//! Evaluation of JSONPath.

use super::{Comparison, Filter, JsonPath, Operand, Part, Step};
use crate::managed_fields::OrderedValue;
use serde_json::Value;

/// Limit on matches: nested wildcards multiply.
const MATCHES_MAX: usize = 100_000;

impl JsonPath {
    /// Returns the matches of the first path.
    pub fn find<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        let path = self.parts.iter().find_map(|part| match part {
            Part::Path(steps) => Some(steps.as_slice()),
            _ => None,
        });
        path.map_or_else(Vec::new, |steps| follow(steps, value, value))
    }

    /// Prints the template for a value; matches are separated by spaces.
    pub fn print(&self, value: &Value) -> String {
        let mut out = String::new();
        print_parts(&self.parts, value, value, &mut out);
        out
    }
}

fn print_parts(parts: &[Part], current: &Value, root: &Value, out: &mut String) {
    for part in parts {
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Path(steps) => {
                let found: Vec<_> = follow(steps, current, root).into_iter().map(printed).collect();
                out.push_str(&found.join(" "));
            }
            Part::Range { over, body } => {
                for item in follow(over, current, root) {
                    print_parts(body, item, root, out);
                }
            }
        }
    }
}

fn printed(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => crate::go_text::json(other),
    }
}

fn follow<'v>(steps: &[Step], current: &'v Value, root: &'v Value) -> Vec<&'v Value> {
    let mut found = vec![current];
    for step in steps {
        let mut next = Vec::new();
        for value in found {
            advance(step, value, root, &mut next);
            if next.len() > MATCHES_MAX {
                next.truncate(MATCHES_MAX);
                break;
            }
        }
        found = next;
    }
    found
}

fn advance<'v>(step: &Step, value: &'v Value, root: &'v Value, out: &mut Vec<&'v Value>) {
    match step {
        Step::Root => out.push(root),
        Step::Field(name) => out.extend(value.get(name)),
        Step::Wildcard => match value {
            Value::Object(map) => out.extend(map.values()),
            Value::Array(items) => out.extend(items),
            _ => {}
        },
        Step::Recursive => descend(value, out),
        Step::Slice { from, to, by, single } => {
            if let Value::Array(items) = value {
                slice(items, *from, *to, *by, *single, out);
            }
        }
        Step::Filter(filter) => {
            if let Value::Array(items) = value {
                out.extend(items.iter().filter(|item| holds(filter, item, root)));
            }
        }
        Step::Union(branches) => {
            for branch in branches {
                out.extend(follow(branch, value, root));
            }
        }
    }
}

fn descend<'v>(value: &'v Value, out: &mut Vec<&'v Value>) {
    if out.len() > MATCHES_MAX {
        return;
    }
    match value {
        Value::Object(map) => {
            out.push(value);
            // Fields of this level precede deeper ones, as in kubectl.
            map.values().for_each(|item| descend(item, out));
        }
        Value::Array(items) => items.iter().for_each(|item| descend(item, out)),
        _ => {}
    }
}

fn slice<'v>(
    items: &'v [Value],
    from: Option<i64>,
    to: Option<i64>,
    by: Option<i64>,
    single: bool,
    out: &mut Vec<&'v Value>,
) {
    let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let absolute = |index: i64| if index < 0 { index.saturating_add(length) } else { index };
    let start = absolute(from.unwrap_or(0));
    let end = if single { start.saturating_add(1) } else { absolute(to.unwrap_or(length)).min(length) };
    if start < 0 || start >= length {
        return;
    }
    let step = usize::try_from(by.unwrap_or(1).max(1)).unwrap_or(1);
    let (start, end) = (usize::try_from(start).unwrap_or(0), usize::try_from(end.max(0)).unwrap_or(0));
    out.extend(items.get(start..end).unwrap_or_default().iter().step_by(step));
}

fn holds(filter: &Filter, item: &Value, root: &Value) -> bool {
    let operand = |operand: &Operand| -> Option<Value> {
        match operand {
            Operand::Literal(value) => Some(value.clone()),
            Operand::Path(steps) => follow(steps, item, root).first().map(|value| (*value).clone()),
        }
    };
    let Some(left) = operand(&filter.left) else { return false };
    let Some((comparison, right)) = &filter.comparison else { return true };
    let Some(right) = operand(right) else { return false };
    let order = OrderedValue::compare(&left, &right);
    let comparable = std::mem::discriminant(&left) == std::mem::discriminant(&right);
    match comparison {
        Comparison::Equal => comparable && order.is_eq(),
        Comparison::NotEqual => !comparable || order.is_ne(),
        Comparison::Less => comparable && order.is_lt(),
        Comparison::LessOrEqual => comparable && order.is_le(),
        Comparison::Greater => comparable && order.is_gt(),
        Comparison::GreaterOrEqual => comparable && order.is_ge(),
    }
}
