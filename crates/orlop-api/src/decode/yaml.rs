//! YAML deserializer that records duplicate keys with their lines and bounds depth.

use super::scalar::visit_scalars;
use super::{DEPTH_MAX, Duplicate};
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// A decoded YAML document.
pub(super) struct YamlBody {
    pub(super) value: Value,
    pub(super) duplicates: Vec<Duplicate>,
}

impl<'de> Deserialize<'de> for YamlBody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut duplicates = Vec::new();
        let value = YamlNode { duplicates: &mut duplicates, depth: 0 }.deserialize(deserializer)?;
        Ok(Self { value, duplicates })
    }
}

struct YamlNode<'a> {
    duplicates: &'a mut Vec<Duplicate>,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for YamlNode<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        if self.depth > DEPTH_MAX {
            return Err(de::Error::custom("exceeded max depth"));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for YamlNode<'_> {
    type Value = Value;

    visit_scalars!();

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        let depth = self.depth + 1;
        while let Some(item) = sequence.next_element_seed(YamlNode { duplicates: self.duplicates, depth })? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        let depth = self.depth + 1;
        while let Some(key) = access.next_key::<serde_saphyr::Spanned<String>>()? {
            if map.contains_key(&key.value) {
                let line = key.referenced.line();
                self.duplicates.push(Duplicate::Yaml { line, key: key.value.clone() });
            }
            let value = access.next_value_seed(YamlNode { duplicates: self.duplicates, depth })?;
            map.insert(key.value, value);
        }
        Ok(Value::Object(map))
    }
}
