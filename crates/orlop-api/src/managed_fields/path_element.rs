//! Path elements.

use crate::go_text;
use serde_json::{Map, Value};
use std::cmp::Ordering;
use std::fmt;

/// A JSON value with a total order: numbers, strings, booleans, lists, maps, null.
/// Integers and floats compare as numbers.
#[derive(Clone, Debug)]
pub struct OrderedValue(pub Value);

impl OrderedValue {
    fn rank(value: &Value) -> u8 {
        match value {
            Value::Number(_) => 0,
            Value::String(_) => 1,
            Value::Bool(_) => 2,
            Value::Array(_) => 3,
            Value::Object(_) => 4,
            Value::Null => 5,
        }
    }

    /// Compares two values by reference.
    pub fn compare(left: &Value, right: &Value) -> Ordering {
        match (left, right) {
            (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
                (Some(left), Some(right)) => left.cmp(&right),
                _ => left.as_f64().unwrap_or_default().total_cmp(&right.as_f64().unwrap_or_default()),
            },
            (Value::String(left), Value::String(right)) => left.cmp(right),
            (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
            (Value::Array(left), Value::Array(right)) => {
                let pairs = left.iter().zip(right).map(|(left, right)| Self::compare(left, right));
                pairs.reduce(Ordering::then).unwrap_or(Ordering::Equal).then(left.len().cmp(&right.len()))
            }
            (Value::Object(left), Value::Object(right)) => {
                let pairs = left.iter().zip(right);
                let pairs = pairs
                    .map(|(left, right)| left.0.cmp(right.0).then_with(|| Self::compare(left.1, right.1)));
                pairs.reduce(Ordering::then).unwrap_or(Ordering::Equal).then(left.len().cmp(&right.len()))
            }
            _ => Self::rank(left).cmp(&Self::rank(right)),
        }
    }
}

impl PartialEq for OrderedValue {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for OrderedValue {}

impl PartialOrd for OrderedValue {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OrderedValue {
    fn cmp(&self, other: &Self) -> Ordering {
        Self::compare(&self.0, &other.0)
    }
}

/// A path element: field name, list item key, set value or index.
/// The order of the variants is the order of path elements.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathElement {
    Field(Box<str>),
    /// Key fields, sorted by name.
    Key(Box<[(Box<str>, OrderedValue)]>),
    Value(OrderedValue),
    Index(i64),
}

impl PathElement {
    pub fn field(name: &str) -> Self {
        Self::Field(name.into())
    }

    pub fn key(mut fields: Vec<(Box<str>, OrderedValue)>) -> Self {
        fields.sort_by(|left, right| left.0.cmp(&right.0));
        Self::Key(fields.into())
    }

    /// Encodes the element: `f:name`, `k:{"a":1}`, `v:"x"`, `i:0`.
    pub fn to_wire(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(fields) => {
                let map: Map<String, Value> =
                    fields.iter().map(|(name, item)| (name.to_string(), item.0.clone())).collect();
                format!("k:{}", go_text::json(&Value::Object(map)))
            }
            Self::Value(item) => format!("v:{}", go_text::json(&item.0)),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    /// Decodes an element; `None` for unknown kinds, which are skipped.
    pub fn from_wire(text: &str) -> Result<Option<Self>, String> {
        let Some((kind, rest)) = text.split_at_checked(2) else {
            return Err("key must be 2 characters long:".to_owned());
        };
        let value = || -> Result<Value, String> {
            crate::decode::json(rest.as_bytes())
                .map(|decoded| decoded.value)
                .map_err(|error| error.to_string())
        };
        match kind {
            "f:" => Ok(Some(Self::field(rest))),
            "v:" => Ok(Some(Self::Value(OrderedValue(value()?)))),
            "k:" => match value()? {
                Value::Object(map) => Ok(Some(Self::key(
                    map.into_iter().map(|(name, value)| (name.into(), OrderedValue(value))).collect(),
                ))),
                _ => Err(format!("a list key must be an object: {text}")),
            },
            "i:" => rest.parse().map(|index| Some(Self::Index(index))).map_err(|error| error.to_string()),
            _ if kind.as_bytes().get(1) != Some(&b':') => Err(format!("missing colon: {text}")),
            _ => Ok(None),
        }
    }
}

/// Formats an element for conflicts: `.spec`, `[name="a"]`, `[="x"]`, `[0]`.
impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                f.write_str("[")?;
                for (index, (name, item)) in fields.iter().enumerate() {
                    let comma = if index > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", printed(&item.0))?;
                }
                f.write_str("]")
            }
            Self::Value(item) => write!(f, "[={}]", printed(&item.0)),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

fn printed(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::String(text) => go_text::quote(text),
        Value::Array(items) => format!("[{}]", items.iter().map(printed).collect::<Vec<_>>().join(",")),
        Value::Object(map) => map.iter().map(|(key, value)| format!("{key}={}", printed(value))).collect(),
        other => go_text::display(other),
    }
}

/// A field path from an object's root.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(pub Vec<PathElement>);

impl Path {
    /// Creates a path of field names.
    pub fn of_fields(names: &[&str]) -> Self {
        Self(names.iter().map(|name| PathElement::field(name)).collect())
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|element| element.fmt(f))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn path_elements_encode_and_print() {
        let key = PathElement::key(vec![
            ("protocol".into(), OrderedValue(json!("TCP"))),
            ("port".into(), OrderedValue(json!(80))),
        ]);
        for (element, wire, printed) in [
            (PathElement::field("a.b"), "f:a.b", ".a.b"),
            (key, r#"k:{"port":80,"protocol":"TCP"}"#, r#"[port=80,protocol="TCP"]"#),
            (PathElement::Value(OrderedValue(json!("a<b"))), "v:\"a\\u003cb\"", "[=\"a<b\"]"),
            (PathElement::Value(OrderedValue(json!(1.5))), "v:1.5", "[=1.5]"),
            (PathElement::Index(3), "i:3", "[3]"),
        ] {
            assert_eq!(element.to_wire(), wire);
            assert_eq!(element.to_string(), printed);
            assert_eq!(PathElement::from_wire(wire).unwrap().unwrap(), element);
        }
    }

    #[test]
    fn invalid_path_elements_fail_and_unknown_ones_are_skipped() {
        for wire in ["", "f", "fx", "v:", "v:1 2", "k:1", "k:{", "i:x"] {
            assert!(PathElement::from_wire(wire).is_err(), "{wire}");
        }
        assert_eq!(PathElement::from_wire("z:new"), Ok(None));
    }

    #[test]
    fn numbers_compare_as_numbers_and_kinds_in_order() {
        let ordered = [
            json!(1),
            json!(1.5),
            json!(2),
            json!("a"),
            json!(false),
            json!(true),
            json!([1]),
            json!([1, 2]),
            json!({"a": 1}),
            json!(null),
        ];
        for pair in ordered.windows(2) {
            assert!(OrderedValue(pair[0].clone()) < OrderedValue(pair[1].clone()), "{pair:?}");
        }
        assert_eq!(OrderedValue(json!(1)), OrderedValue(json!(1.0)));
    }
}
