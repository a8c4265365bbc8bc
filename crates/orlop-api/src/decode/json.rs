//! JSON deserializer that records duplicate keys and bounds depth.

use super::scalar::visit_scalars;
use super::{DEPTH_MAX, Duplicate};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// State of decoding a JSON document.
#[derive(Default)]
pub(super) struct Reading {
    pub(super) duplicates: Vec<Duplicate>,
    path: Vec<Step>,
    keys_seen: usize,
    pub(super) too_deep: bool,
    /// Positions of keys by path, if requested.
    pub(super) positions: Option<HashMap<String, usize>>,
}

enum Step {
    Key(String),
    Index(usize),
}

impl Reading {
    /// Creates a state that records the positions of keys.
    pub(super) fn with_positions() -> Self {
        Self { positions: Some(HashMap::new()), ..Self::default() }
    }

    /// Formats the path of a key below the current path.
    fn printed_path(&self, last: &str) -> String {
        let mut out = String::new();
        for step in &self.path {
            match step {
                Step::Key(key) if out.is_empty() => out.push_str(key),
                Step::Key(key) => {
                    out.push('.');
                    out.push_str(key);
                }
                Step::Index(index) => {
                    out.push('[');
                    out.push_str(&index.to_string());
                    out.push(']');
                }
            }
        }
        if !out.is_empty() {
            out.push('.');
        }
        out.push_str(last);
        out
    }
}

/// Decodes one value.
pub(super) struct Node<'a> {
    pub(super) reading: &'a mut Reading,
    pub(super) depth: usize,
}

impl Node<'_> {
    fn enter<E: de::Error>(&mut self) -> Result<(), E> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            self.reading.too_deep = true;
            return Err(E::custom("exceeded max depth"));
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    visit_scalars!();

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut sequence: A) -> Result<Value, A::Error> {
        self.enter()?;
        let mut items = Vec::new();
        self.reading.path.push(Step::Index(0));
        loop {
            if let Some(Step::Index(index)) = self.reading.path.last_mut() {
                *index = items.len();
            }
            match sequence.next_element_seed(Node { reading: self.reading, depth: self.depth })? {
                Some(item) => items.push(item),
                None => break,
            }
        }
        self.reading.path.pop();
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut access: A) -> Result<Value, A::Error> {
        self.enter()?;
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let position = self.reading.keys_seen;
            self.reading.keys_seen += 1;
            let duplicate = map.contains_key(&key);
            if duplicate || self.reading.positions.is_some() {
                let path = self.reading.printed_path(&key);
                if duplicate {
                    self.reading.duplicates.push(Duplicate::Json { path: path.clone(), position });
                }
                if let Some(positions) = &mut self.reading.positions {
                    positions.entry(path).or_insert(position);
                }
            }
            self.reading.path.push(Step::Key(key));
            let value = access.next_value_seed(Node { reading: self.reading, depth: self.depth })?;
            if let Some(Step::Key(key)) = self.reading.path.pop() {
                map.insert(key, value);
            }
        }
        Ok(Value::Object(map))
    }
}
