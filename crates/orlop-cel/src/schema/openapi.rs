//! Schemas from OpenAPI v3 JSON, of custom resources and built-in kinds alike.
//!
//! References are followed through a function the caller gives. A schema that contains itself is cut where it
//! repeats: expressions do not see below. Keywords that say nothing to expressions are ignored, and so are keywords
//! with values of the wrong type. Schemas are not validated here.

use serde_json::Value as Json;

use super::{ListType, Schema, SchemaSpec};

/// Schemas nested deeper than this are cut.
const DEPTH_MAX: usize = 64;

impl Schema {
    /// Reads an OpenAPI v3 schema without references, such as a CustomResourceDefinition's.
    pub fn from_openapi(name: &str, json: &Json, is_resource: bool) -> Option<Self> {
        Self::from_openapi_with(name, json, is_resource, &|_| None)
    }

    /// Reads an OpenAPI v3 schema; `resolve` gives the schema behind a `$ref`.
    pub fn from_openapi_with<'j>(
        name: &str,
        json: &'j Json,
        is_resource: bool,
        resolve: &dyn Fn(&str) -> Option<&'j Json>,
    ) -> Option<Self> {
        Self::new(name, &SchemaSpec::from_openapi(json, resolve), is_resource)
    }
}

impl SchemaSpec {
    /// Reads an OpenAPI v3 schema; `resolve` gives the schema behind a `$ref`.
    pub fn from_openapi<'j>(json: &'j Json, resolve: &dyn Fn(&str) -> Option<&'j Json>) -> Self {
        Reader { resolve, open: Vec::new(), depth: 0 }.read(json)
    }
}

struct Reader<'r, 'j> {
    resolve: &'r dyn Fn(&str) -> Option<&'j Json>,
    /// The references being followed.
    open: Vec<String>,
    depth: usize,
}

impl<'j> Reader<'_, 'j> {
    fn read(&mut self, json: &'j Json) -> SchemaSpec {
        if self.depth >= DEPTH_MAX {
            return SchemaSpec::default();
        }
        self.depth += 1;
        let spec = match reference(json) {
            Some(name) => self.follow(name),
            None => self.keywords(json),
        };
        self.depth -= 1;
        spec
    }

    fn follow(&mut self, name: &str) -> SchemaSpec {
        if self.open.iter().any(|open| open == name) {
            return SchemaSpec::default();
        }
        let Some(json) = (self.resolve)(name) else { return SchemaSpec::default() };
        self.open.push(name.to_owned());
        let spec = self.read(json);
        self.open.pop();
        spec
    }

    fn keywords(&mut self, json: &'j Json) -> SchemaSpec {
        let text = |key: &str| json.get(key).and_then(Json::as_str).unwrap_or_default().to_owned();
        let flag = |key: &str| json.get(key).and_then(Json::as_bool).unwrap_or(false);
        // A negative limit lets nothing through, as in Kubernetes.
        let limit = |key: &str| json.get(key).and_then(Json::as_i64).map(|limit| limit.max(0) as u64);
        let strings = |key: &str| -> Vec<String> {
            let list = json.get(key).and_then(Json::as_array).into_iter().flatten();
            list.filter_map(Json::as_str).map(str::to_owned).collect()
        };
        let enum_values = json.get("enum").and_then(Json::as_array);
        let format = text("format");
        let list_type = match text("x-kubernetes-list-type").as_str() {
            "set" => ListType::Set,
            "map" => ListType::Map(strings("x-kubernetes-list-map-keys")),
            _ => ListType::Atomic,
        };
        let properties = json.get("properties").and_then(Json::as_object).into_iter().flatten();
        SchemaSpec {
            name: String::new(),
            kind: text("type"),
            nullable: flag("nullable"),
            properties: properties.map(|(name, property)| (name.clone(), self.read(property))).collect(),
            required: strings("required"),
            additional_properties: self.nested(json, "additionalProperties"),
            items: self.nested(json, "items"),
            max_length: limit("maxLength"),
            max_items: limit("maxItems"),
            max_properties: limit("maxProperties"),
            enum_length_max: enum_values.filter(|values| !values.is_empty()).map(|values| {
                values.iter().filter_map(Json::as_str).map(|value| value.len() as u64).max().unwrap_or(0)
            }),
            has_default: json.get("default").is_some_and(|default| !default.is_null()),
            int_or_string: flag("x-kubernetes-int-or-string") || format == "int-or-string",
            preserve_unknown_fields: flag("x-kubernetes-preserve-unknown-fields"),
            embedded_resource: flag("x-kubernetes-embedded-resource"),
            list_type,
            format,
            lenient: false,
        }
    }

    fn nested(&mut self, json: &'j Json, key: &str) -> Option<Box<SchemaSpec>> {
        json.get(key).filter(|nested| nested.is_object()).map(|nested| Box::new(self.read(nested)))
    }
}

/// The target of `$ref`, also where it is wrapped in a single `allOf` to carry a default or description.
fn reference(json: &Json) -> Option<&str> {
    let direct = json.get("$ref").and_then(Json::as_str);
    direct.or_else(|| match json.get("allOf")?.as_array()?.as_slice() {
        [only] if json.get("type").is_none() => only.get("$ref")?.as_str(),
        _ => None,
    })
}
