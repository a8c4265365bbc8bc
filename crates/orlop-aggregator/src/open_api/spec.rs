//! The part of a version 2 document that is about one group version.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::references::{self, DEFINITIONS, PARAMETERS};

/// A document that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// It is not JSON.
    #[error("invalid OpenAPI document: {0}")]
    Invalid(#[from] serde_json::Error),
    /// A part is not an object.
    #[error("invalid OpenAPI document: {0} must be an object of objects")]
    NotObjects(&'static str),
}

/// Paths, and the definitions and parameters that they refer to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spec {
    /// Path items by path.
    pub paths: Map<String, Value>,
    /// Schemas by name.
    pub definitions: Map<String, Value>,
    /// Shared parameters by name. Their names have a hash of their content, so the same name is the same parameter.
    pub parameters: Map<String, Value>,
}

impl Spec {
    /// Reads a document.
    pub fn parse(document: &[u8]) -> Result<Self, SpecError> {
        let mut document: Map<String, Value> = serde_json::from_slice(document)?;
        let mut objects = |field: &'static str| match document.remove(field) {
            None | Some(Value::Null) => Ok(Map::new()),
            Some(Value::Object(map)) if map.values().all(Value::is_object) => Ok(map),
            Some(_) => Err(SpecError::NotObjects(field)),
        };
        Ok(Self {
            paths: objects("paths")?,
            definitions: objects("definitions")?,
            parameters: objects("parameters")?,
        })
    }

    /// Returns the part below a path, and the definitions that it refers to.
    pub fn below(&self, prefix: &str) -> Self {
        let paths: Map<String, Value> = self
            .paths
            .iter()
            .filter(|(path, _)| path.starts_with(prefix))
            .map(|(path, item)| (path.clone(), item.clone()))
            .collect();
        let mut referred = BTreeSet::new();
        paths.values().for_each(|item| references::collect(item, PARAMETERS, &mut referred));
        let parameters: Map<String, Value> = self
            .parameters
            .iter()
            .filter(|(name, _)| referred.contains(*name))
            .map(|(name, parameter)| (name.clone(), parameter.clone()))
            .collect();
        let mut open = BTreeSet::new();
        let parts = paths.values().chain(parameters.values());
        parts.for_each(|part| references::collect(part, DEFINITIONS, &mut open));
        let mut definitions = Map::new();
        while let Some(name) = open.pop_first() {
            if definitions.contains_key(&name) {
                continue;
            }
            if let Some(schema) = self.definitions.get(&name) {
                references::collect(schema, DEFINITIONS, &mut open);
                definitions.insert(name, schema.clone());
            }
        }
        Self { paths, definitions, parameters }
    }

    /// Merges this into a document. A path that exists is left as it is. A definition whose name is taken by another
    /// schema gets a new name, with `_v2` and so on at its end. `existing` returns the document's definition of a name.
    pub fn merged_into(
        &self,
        has_path: impl Fn(&str) -> bool,
        existing: impl Fn(&str) -> Option<Value>,
    ) -> Self {
        let mut renamed: BTreeMap<String, String> = BTreeMap::new();
        let mut present = BTreeSet::new();
        for (name, schema) in &self.definitions {
            match existing(name) {
                None => {}
                Some(same) if is_same(&same, schema) => {
                    present.insert(name.clone());
                }
                Some(_) => {
                    let free =
                        |name: &String| existing(name).is_none() && !self.definitions.contains_key(name);
                    let numbered = (2..).map(|number: u32| format!("{name}_v{number}"));
                    // Names are finite: one of the first is free.
                    let other = numbered.take(self.definitions.len() + 1000).find(free);
                    renamed.insert(name.clone(), other.unwrap_or_else(|| format!("{name}_aggregated")));
                }
            }
        }
        let to = |name: &str| renamed.get(name).map(|other| format!("{DEFINITIONS}{other}"));
        let rewritten = |value: &Value| {
            let mut value = value.clone();
            if !renamed.is_empty() {
                references::rewrite(&mut value, &to);
            }
            value
        };
        let paths = self.paths.iter().filter(|(path, _)| !has_path(path));
        let definitions = self.definitions.iter().filter(|(name, _)| !present.contains(*name));
        Self {
            paths: paths.map(|(path, item)| (path.clone(), rewritten(item))).collect(),
            definitions: definitions
                .map(|(name, schema)| (renamed.get(name).unwrap_or(name).clone(), rewritten(schema)))
                .collect(),
            parameters: self
                .parameters
                .iter()
                .map(|(name, value)| (name.clone(), rewritten(value)))
                .collect(),
        }
    }
}

/// Returns true if two schemas are the same but for the kinds that they are of: DeleteOptions, for one, is of as many as a
/// server has group versions.
fn is_same(one: &Value, other: &Value) -> bool {
    const KINDS: &str = "x-kubernetes-group-version-kind";
    let fields = |value: &Value| -> Map<String, Value> {
        let all = value.as_object().into_iter().flatten();
        all.filter(|(field, _)| *field != KINDS)
            .map(|(field, value)| (field.clone(), value.clone()))
            .collect()
    };
    fields(one) == fields(other)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn spec(value: &Value) -> Spec {
        Spec::parse(value.to_string().as_bytes()).unwrap()
    }

    fn reference(name: &str) -> Value {
        json!({"$ref": format!("{DEFINITIONS}{name}")})
    }

    #[test]
    fn part_of_a_group_version_has_the_definitions_it_refers_to() {
        let whole = spec(&json!({
            "paths": {
                "/apis/a/v1/lamps": {
                    "get": {"responses": {"200": {"schema": reference("Lamp")}}},
                    "parameters": [{"$ref": "#/parameters/body-a"}],
                },
                "/apis/a/v10/lamps": {"get": {}, "parameters": [{"$ref": "#/parameters/pretty-b"}]},
                "/version": {"get": {}},
            },
            "parameters": {
                "body-a": {"in": "body", "schema": reference("Options")},
                "pretty-b": {"in": "query", "name": "pretty"},
            },
            "definitions": {
                "Options": {"type": "object"},
                "Lamp": {"properties": {"self": reference("Lamp"), "meta": reference("Meta"), "gone": reference("Gone")}},
                "Meta": {"type": "object"}, "Other": {"type": "object"},
            },
        }));
        let part = whole.below("/apis/a/v1/");
        assert_eq!(part.paths.keys().collect::<Vec<_>>(), ["/apis/a/v1/lamps"]);
        assert_eq!(part.definitions.keys().collect::<Vec<_>>(), ["Lamp", "Meta", "Options"]);
        assert_eq!(part.parameters.keys().collect::<Vec<_>>(), ["body-a"]);
        assert_eq!(part.merged_into(|_| false, |_| None), part);
    }

    #[test]
    fn definitions_that_differ_are_renamed_with_their_references() {
        let remote = spec(&json!({
            "paths": {"/apis/a/v1/lamps": {"get": reference("Lamp")}, "/taken": {"get": {}}},
            "definitions": {"Lamp": {"of": reference("Meta")}, "Meta": {"type": "string"}, "Same": {"type": "object"}},
        }));
        let same = json!({"type": "object", "x-kubernetes-group-version-kind": [{"kind": "Same"}]});
        let local = json!({"Meta": {"type": "object"}, "Meta_v2": {}, "Same": same});
        let merged = remote.merged_into(|path| path == "/taken", |name| local.get(name).cloned());
        assert_eq!(merged.definitions.keys().collect::<Vec<_>>(), ["Lamp", "Meta_v3"]);
        assert_eq!(merged.definitions["Lamp"]["of"], reference("Meta_v3"));
        assert_eq!(merged.paths.keys().collect::<Vec<_>>(), ["/apis/a/v1/lamps"]);
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in ["", "[]", "1", "{\"paths\":1}", "{\"paths\":{\"/a\":1}}", "{\"definitions\":[]}"] {
            assert!(Spec::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert_eq!(Spec::parse(b"{}").unwrap(), Spec::default());
        let deep = format!("{{\"paths\":{}1{}}}", "{\"a\":".repeat(1000), "}".repeat(1000));
        assert!(Spec::parse(deep.as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,80}") {
            let _ = Spec::parse(text.as_bytes());
        }
    }
}
