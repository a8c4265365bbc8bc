//! Differences of two values.

use serde_json::Value;

use crate::request::Request;

/// Characters of a value that are shown.
const SHOWN_CHARS_MAX: usize = 600;

/// A place at which two values differ.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Difference {
    /// JSON pointer.
    pub(crate) pointer: String,
    /// `None` if it is absent.
    pub(crate) ours: Option<Value>,
    pub(crate) theirs: Option<Value>,
}

impl Difference {
    /// Returns what it has in common with others: the label of the request, and the pointer without numbers.
    pub(crate) fn shape(&self, request: &Request) -> String {
        let steps = self.pointer.split('/').map(|step| match step.parse::<usize>() {
            Ok(_) => "*",
            Err(_) => step,
        });
        format!("{} {}", request.label, steps.collect::<Vec<_>>().join("/"))
    }
}

/// Returns the places at which two values differ, as deep as possible. Lists of different lengths differ as a whole.
pub(crate) fn differences(ours: &Value, theirs: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    walk(String::new(), Some(ours), Some(theirs), &mut found);
    found
}

fn walk(pointer: String, ours: Option<&Value>, theirs: Option<&Value>, found: &mut Vec<Difference>) {
    match (ours, theirs) {
        (Some(Value::Object(one)), Some(Value::Object(other))) => {
            let only_theirs = other.keys().filter(|key| !one.contains_key(*key));
            for key in one.keys().chain(only_theirs) {
                let escaped = key.replace('~', "~0").replace('/', "~1");
                walk(format!("{pointer}/{escaped}"), one.get(key), other.get(key), found);
            }
        }
        (Some(Value::Array(one)), Some(Value::Array(other))) if one.len() == other.len() => {
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                walk(format!("{pointer}/{index}"), Some(one), Some(other), found);
            }
        }
        (ours, theirs) if ours != theirs => {
            found.push(Difference { pointer, ours: ours.cloned(), theirs: theirs.cloned() });
        }
        _ => {}
    }
}

pub(crate) fn shortened(value: &Option<Value>) -> String {
    let text = value.as_ref().map_or_else(|| "<absent>".to_owned(), Value::to_string);
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_are_as_deep_as_possible() {
        let found = differences(
            &json!({"a": {"b": 1, "c": 2}, "list": [1, {"x": 1}], "same": [1]}),
            &json!({"a": {"b": 3, "d/e": 4}, "list": [1, {"x": 2}], "same": [1]}),
        );
        let pointers: Vec<&str> = found.iter().map(|difference| difference.pointer.as_str()).collect();
        assert_eq!(pointers, ["/a/b", "/a/c", "/a/d~1e", "/list/1/x"]);
        assert_eq!(differences(&json!([1]), &json!([1, 2])).len(), 1);
    }
}
