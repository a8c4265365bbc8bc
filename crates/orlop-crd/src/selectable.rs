//! Selectable fields.

use orlop_api::go_text;
use orlop_api::json_path::JsonPath;
use orlop_api::schema::unstructured::text;
use serde_json::Value;

/// The `selectableFields` of a version.
#[derive(Clone, Debug, Default)]
pub struct SelectableFields {
    /// Name in selectors (`spec.color`) and its JSONPath.
    fields: Vec<(String, JsonPath)>,
}

impl SelectableFields {
    /// Reads `selectableFields`.
    pub fn of(declared: &Value) -> Self {
        let fields = declared.as_array().into_iter().flatten().filter_map(|field| {
            let path = text(field, "jsonPath");
            let parsed = JsonPath::column(path).ok()?;
            Some((path.strip_prefix('.').unwrap_or(path).to_owned(), parsed))
        });
        Self { fields: fields.collect() }
    }

    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Returns the names used in field selectors.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|(name, _)| name.as_str())
    }

    /// Returns every field with an object's value as text; empty if unset.
    pub fn values<'a>(&'a self, object: &'a Value) -> impl Iterator<Item = (&'a str, String)> + 'a {
        self.fields.iter().map(|(name, path)| {
            let found = path.find(object).first().copied().filter(|value| !value.is_null());
            (name.as_str(), found.map(go_text::display).unwrap_or_default())
        })
    }

    /// Returns a field of an object as text; `None` if it is not selectable.
    pub fn value(&self, name: &str, object: &Value) -> Option<String> {
        self.values(object).find(|(field, _)| *field == name).map(|(_, value)| value)
    }
}
