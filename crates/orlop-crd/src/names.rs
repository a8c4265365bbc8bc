//! Names of a custom kind.

use orlop_api::schema::unstructured::{strings, text};
use serde_json::{Map, Value};

/// Names of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    pub plural: String,
    pub singular: String,
    pub kind: String,
    pub list_kind: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
}

impl Names {
    /// Reads `spec.names` or `status.acceptedNames`.
    pub fn of(names: &Value) -> Self {
        Self {
            plural: text(names, "plural").to_owned(),
            singular: text(names, "singular").to_owned(),
            kind: text(names, "kind").to_owned(),
            list_kind: text(names, "listKind").to_owned(),
            short_names: strings(names, "shortNames").map(str::to_owned).collect(),
            categories: strings(names, "categories").map(str::to_owned).collect(),
        }
    }

    /// Returns the JSON: `plural` and `kind` always, the other fields unless empty.
    pub fn to_value(&self) -> Value {
        let mut map = Map::new();
        for (key, value, always) in [
            ("plural", &self.plural, true),
            ("singular", &self.singular, false),
            ("kind", &self.kind, true),
            ("listKind", &self.list_kind, false),
        ] {
            if always || !value.is_empty() {
                map.insert(key.to_owned(), value.as_str().into());
            }
        }
        for (key, values) in [("shortNames", &self.short_names), ("categories", &self.categories)] {
            if !values.is_empty() {
                map.insert(key.to_owned(), values.clone().into());
            }
        }
        Value::Object(map)
    }
}
