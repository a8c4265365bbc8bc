//! Encoded field sets.
//!
//! A large object has thousands of owned paths and a write touches a few. So the set stays
//! in its stored JSON, and only the paths of a write are looked up, removed or
//! added; nothing else is decoded or copied. This works because the encoding
//! is canonical: one string per path element. Other spellings are canonicalized once.

use super::fields_v1::{from_value, to_map};
use super::set::{Node, Set};
use serde_json::{Map, Value};

/// A field set in `fieldsV1` encoding.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fields {
    wire: Map<String, Value>,
}

impl Fields {
    pub fn from_set(set: &Set) -> Self {
        Self { wire: to_map(set, false) }
    }

    /// Decodes `fieldsV1`. Canonical input is kept as is.
    pub fn from_wire(value: Value) -> Result<Self, String> {
        match value {
            Value::Object(wire) if is_canonical(&wire, true) => Ok(Self { wire }),
            other => from_value(&other).map(|set| Self::from_set(&set)),
        }
    }

    pub fn to_set(&self) -> Set {
        // Canonical encodings always decode.
        from_value(&Value::Object(self.wire.clone())).unwrap_or_default()
    }

    pub fn into_wire(self) -> Value {
        Value::Object(self.wire)
    }

    pub fn as_wire(&self) -> &Map<String, Value> {
        &self.wire
    }

    pub(crate) fn wire_mut(&mut self) -> &mut Map<String, Value> {
        &mut self.wire
    }

    pub fn is_empty(&self) -> bool {
        self.wire.is_empty()
    }

    /// Returns the paths that are also in the other set.
    pub fn intersection(&self, other: &Set) -> Set {
        intersection(&self.wire, other)
    }

    /// Removes paths.
    pub fn subtract(&mut self, other: &Set) {
        subtract(&mut self.wire, other);
    }

    /// Adds paths.
    pub fn add(&mut self, other: &Set) {
        add(&mut self.wire, other);
    }

    /// Returns whether these are exactly the paths of a set.
    pub fn is(&self, set: &Set) -> bool {
        is_same(&self.wire, set, false)
    }

    /// Returns whether this path is in the set.
    pub fn has(&self, path: &super::Path) -> bool {
        !self.intersection(&Set::from_paths([path.clone()])).is_empty()
    }
}

/// Returns whether a node is a member: it has no children, or the key `"."`.
fn is_member(node: &Map<String, Value>) -> bool {
    node.is_empty() || node.contains_key(".")
}

fn is_same(wire: &Map<String, Value>, set: &Set, member: bool) -> bool {
    let marked = member && !set.is_empty();
    wire.len() == set.nodes().len() + usize::from(marked)
        && marked == wire.contains_key(".")
        && set.nodes().iter().all(|node| match wire.get(&node.element.to_wire()) {
            Some(Value::Object(children)) => is_same(children, &node.children, node.member),
            _ => false,
        })
}

fn intersection(wire: &Map<String, Value>, set: &Set) -> Set {
    let mut result = Set::new();
    for node in set.nodes() {
        if let Some(Value::Object(found)) = wire.get(&node.element.to_wire()) {
            let children = intersection(found, &node.children);
            result.push(Node {
                element: node.element.clone(),
                member: node.member && is_member(found),
                children,
            });
        }
    }
    result
}

fn subtract(wire: &mut Map<String, Value>, set: &Set) {
    for node in set.nodes() {
        let key = node.element.to_wire();
        let Some(Value::Object(found)) = wire.get_mut(&key) else { continue };
        let member = is_member(found) && !node.member;
        found.remove(".");
        subtract(found, &node.children);
        if found.is_empty() {
            if !member {
                wire.remove(&key);
            }
        } else if member {
            found.insert(".".to_owned(), Value::Object(Map::new()));
        }
    }
}

fn add(wire: &mut Map<String, Value>, set: &Set) {
    for node in set.nodes() {
        let found = wire.entry(node.element.to_wire());
        let found = match found {
            serde_json::map::Entry::Vacant(vacant) => {
                vacant.insert(Value::Object(to_map(&node.children, node.member)));
                continue;
            }
            serde_json::map::Entry::Occupied(occupied) => occupied.into_mut(),
        };
        let Value::Object(found) = found else { continue };
        let member = is_member(found) || node.member;
        found.remove(".");
        add(found, &node.children);
        if member && !found.is_empty() {
            found.insert(".".to_owned(), Value::Object(Map::new()));
        }
    }
}

/// Returns whether every path element is in canonical form.
fn is_canonical(wire: &Map<String, Value>, root: bool) -> bool {
    wire.iter().all(|(key, value)| {
        let Value::Object(children) = value else { return false };
        match key.get(..2) {
            None => key == "." && !root && children.is_empty() && wire.len() > 1,
            Some("f:") => is_canonical(children, false),
            Some("k:") => is_plain_key(&key[2..]) && is_canonical(children, false),
            Some("v:") => {
                plain_scalar(&key.as_bytes()[2..]) == Some(key.len() - 2) && is_canonical(children, false)
            }
            Some("i:") => {
                key[2..].parse::<i64>().is_ok_and(|index| index.to_string() == key[2..])
                    && is_canonical(children, false)
            }
            Some(_) => false,
        }
    })
}

/// `{"a":1,"b":"x"}` with names ascending and nothing that needs an escape; other keys are parsed.
fn is_plain_key(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut at = 0;
    let mut last: &[u8] = b"";
    let take = |at: &mut usize, expected: u8| {
        let found = bytes.get(*at) == Some(&expected);
        *at += usize::from(found);
        found
    };
    if !take(&mut at, b'{') {
        return false;
    }
    loop {
        let Some(length) = plain_text(&bytes[at..]) else { return false };
        let name = &bytes[at..at + length];
        if name <= last {
            return false;
        }
        last = name;
        at += length;
        if !take(&mut at, b':') {
            return false;
        }
        let Some(length) = plain_scalar(&bytes[at..]) else { return false };
        at += length;
        if take(&mut at, b'}') {
            return at == bytes.len();
        }
        if !take(&mut at, b',') {
            return false;
        }
    }
}

/// Returns the length of a leading quoted string without escapes.
fn plain_text(bytes: &[u8]) -> Option<usize> {
    let (b'"', rest) = bytes.split_first()? else { return None };
    let length =
        rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | b'<' | b'>' | b'&' | 0..0x20 | 0x7f..))?;
    (rest[length] == b'"').then_some(length + 2)
}

/// Returns the length of a leading scalar in canonical form.
fn plain_scalar(bytes: &[u8]) -> Option<usize> {
    match bytes.first()? {
        b'"' => plain_text(bytes),
        b't' => bytes.starts_with(b"true").then_some(4),
        b'f' => bytes.starts_with(b"false").then_some(5),
        b'n' => bytes.starts_with(b"null").then_some(4),
        b'0' => {
            (!bytes.get(1).is_some_and(|next| matches!(next, b'0'..=b'9' | b'.' | b'e' | b'E'))).then_some(1)
        }
        b'1'..=b'9' => {
            let length = bytes.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(bytes.len());
            let ends = !bytes.get(length).is_some_and(|next| matches!(next, b'.' | b'e' | b'E'));
            (ends && length < 19).then_some(length)
        }
        _ => None,
    }
}

impl From<&Fields> for Value {
    fn from(fields: &Fields) -> Self {
        Self::Object(fields.wire.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::super::set::tests::sets;
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn non_canonical_encodings_are_canonicalized() {
        for (written, canonical) in [
            (json!({"k:{\"b\": 1, \"a\":2}": {}}), json!({"k:{\"a\":2,\"b\":1}": {}})),
            (json!({"v:1.0": {}}), json!({"v:1": {}})),
            (json!({"v:\"a<b\"": {}}), json!({"v:\"a\\u003cb\"": {}})),
            (json!({"f:a": {".": {}}}), json!({"f:a": {}})),
            (json!({"f:a": {}, "z:new": {}}), json!({"f:a": {}})),
            (json!({".": {}, "f:a": {}}), json!({"f:a": {}})),
            (json!(null), json!({})),
        ] {
            assert_eq!(Fields::from_wire(written).unwrap().into_wire(), canonical);
        }
        let plain = json!({"k:{\"a\":0,\"b\":\"x y\",\"c\":true}": {".": {}, "f:z": {}}, "v:17": {}, "v:\"q\"": {}, "i:3": {}});
        assert!(is_canonical(plain.as_object().unwrap(), true));
        for odd in [
            "{}",
            "{\"a\":01}",
            "{\"a\":1.5}",
            "{\"b\":1,\"a\":1}",
            "{\"a\":1}x",
            "{\"a\":1,}",
            "{\"a\" :1}",
            "{\"a\":\"\\n\"}",
            "",
        ] {
            assert!(!is_plain_key(odd), "{odd}");
        }
        assert!(Fields::from_wire(json!({"k:{": {}})).is_err());
    }

    proptest! {
        #[test]
        fn encoded_algebra_matches_sets(left in sets(), right in sets()) {
            let fields = Fields::from_set(&left);
            prop_assert!(fields.is(&left));
            prop_assert_eq!(fields.is(&right), left == right);
            prop_assert!(is_canonical(fields.as_wire(), true));
            prop_assert_eq!(fields.intersection(&right), left.intersection(&right));
            let mut less = fields.clone();
            less.subtract(&right);
            prop_assert_eq!(less.to_set(), left.difference(&right));
            prop_assert_eq!(&less, &Fields::from_set(&left.difference(&right)));
            let mut more = fields.clone();
            more.add(&right);
            prop_assert_eq!(&more, &Fields::from_set(&left.union(&right)));
            prop_assert_eq!(more.to_set(), left.union(&right));
        }
    }
}
