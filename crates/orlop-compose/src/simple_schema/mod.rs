//! SimpleSchema: the short form in which authors write a kind's fields, and the OpenAPI it stands for.
//!
//! A field is a nested map (a struct), or a text `TYPE` or `TYPE | MARKERS`. Custom types of `schema.types` are inlined
//! where they are named. Errors carry the path as `field <name>: ` per level.

mod markers;

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use crate::dag::Dag;

/// Lists and maps nested deeper than this are refused.
const NESTING_MAX: usize = 16;
/// Structs nested deeper than this are refused; the depth of a request's body bounds them as well.
const DEPTH_MAX: usize = 64;

/// Builds the OpenAPI schema of `fields`, which may name `types`.
pub fn to_openapi(fields: &Map<String, Json>, types: &Map<String, Json>) -> Result<Json, String> {
    let types = CustomTypes::build(types)?;
    let schema = types.object(fields, 0)?;
    Ok(Json::Object(schema.schema))
}

/// A type, and whether an alias makes its fields required.
#[derive(Clone, Debug, Default)]
struct Built {
    schema: Map<String, Json>,
    required: Option<bool>,
}

#[derive(Debug, Default)]
struct CustomTypes {
    built: BTreeMap<String, Built>,
}

impl CustomTypes {
    /// Builds types in the order of their references.
    fn build(types: &Map<String, Json>) -> Result<Self, String> {
        let mut dag = Dag::default();
        for (index, name) in types.keys().enumerate() {
            dag.add_node(name, index);
        }
        for (name, definition) in types {
            let mut named = Vec::new();
            references(definition, 0, &mut named).map_err(|error| format!("parsing type {name}: {error}"))?;
            for reference in named {
                if !types.contains_key(&reference) {
                    return Err(format!("parsing type {name}: node {reference} does not exist"));
                }
                dag.add_edge(name, &reference)
                    .map_err(|error| format!("cyclic dependency in type {name}: {error}"))?;
            }
        }
        let order = dag.order().map_err(|error| {
            let at = error.cycle.first().cloned().unwrap_or_default();
            format!("cyclic dependency in type {at}: {error}")
        })?;
        let mut custom = Self::default();
        for name in order {
            let Some(definition) = types.get(&name) else { continue };
            let built = custom
                .field(definition, 0)
                .map_err(|error| format!("building schema for {name}: {error}"))?;
            custom.built.insert(name, built);
        }
        Ok(custom)
    }

    /// The schema of a struct.
    fn object(&self, fields: &Map<String, Json>, depth: usize) -> Result<Built, String> {
        if depth > DEPTH_MAX {
            return Err(format!("structs nested too deep (max {DEPTH_MAX})"));
        }
        let mut properties = Map::new();
        let mut required = Vec::new();
        let mut has_default = false;
        for (name, definition) in fields {
            let built = self.field(definition, depth).map_err(|error| format!("field {name}: {error}"))?;
            if built.required == Some(true) {
                required.push(json!(name));
            }
            has_default |= built.schema.contains_key("default");
            properties.insert(name.clone(), Json::Object(built.schema));
        }
        let mut schema = Map::from_iter([("type".to_owned(), json!("object"))]);
        // A struct whose fields all have a value or may be absent exists by itself, so that defaults below apply.
        if required.is_empty() && has_default {
            schema.insert("default".to_owned(), json!({}));
        }
        schema.insert("properties".to_owned(), Json::Object(properties));
        if !required.is_empty() {
            schema.insert("required".to_owned(), Json::Array(required));
        }
        Ok(Built { schema, required: None })
    }

    fn field(&self, definition: &Json, depth: usize) -> Result<Built, String> {
        match definition {
            Json::Object(fields) => self.object(fields, depth + 1),
            Json::String(text) => {
                let (name, markers) = split(text);
                let mut built = self.named(name, 0)?;
                let markers = markers::parse(markers)?;
                let required = markers::apply(&markers, &mut built.schema)?;
                built.required = required.or(built.required);
                Ok(built)
            }
            other => Err(format!("unexpected type: {}", go_type(other))),
        }
    }

    fn named(&self, name: &str, nesting: usize) -> Result<Built, String> {
        let plain = |pairs: &[(&str, Json)]| {
            let schema = pairs.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
            Ok(Built { schema, required: None })
        };
        if let Some((key, inner)) = collection(name, nesting)? {
            let inner = Json::Object(self.named(inner, nesting + 1)?.schema);
            return match key {
                Collection::List => plain(&[("type", json!("array")), ("items", inner)]),
                Collection::Map => plain(&[("type", json!("object")), ("additionalProperties", inner)]),
            };
        }
        match name {
            "string" | "integer" | "boolean" => plain(&[("type", json!(name))]),
            "float" => plain(&[("type", json!("number"))]),
            "object" => {
                plain(&[("type", json!("object")), ("x-kubernetes-preserve-unknown-fields", json!(true))])
            }
            other => self.built.get(other).cloned().ok_or_else(|| format!("unknown type: {other}")),
        }
    }
}

#[derive(Clone, Copy)]
enum Collection {
    List,
    Map,
}

/// Splits `TYPE | MARKERS`.
fn split(text: &str) -> (&str, &str) {
    let (name, markers) = text.split_once('|').unwrap_or((text, ""));
    (name.trim(), markers)
}

/// Splits `[]T` and `map[string]T`.
fn collection(name: &str, nesting: usize) -> Result<Option<(Collection, &str)>, String> {
    if name.is_empty() {
        return Err("empty type".to_owned());
    }
    if nesting > NESTING_MAX {
        return Err(format!("type nesting too deep (max {NESTING_MAX}): \"{name}\""));
    }
    if let Some(inner) = name.strip_prefix("[]") {
        if inner.is_empty() {
            return Err("empty slice element type".to_owned());
        }
        return Ok(Some((Collection::List, inner)));
    }
    if let Some(rest) = name.strip_prefix("map[") {
        let Some(inner) = rest.strip_prefix("string]") else {
            return Err("map key must be string".to_owned());
        };
        if inner.is_empty() {
            return Err("map value type is required".to_owned());
        }
        return Ok(Some((Collection::Map, inner)));
    }
    Ok(None)
}

/// Collects the custom types that a definition names.
fn references(definition: &Json, depth: usize, named: &mut Vec<String>) -> Result<(), String> {
    if depth > DEPTH_MAX {
        return Err(format!("structs nested too deep (max {DEPTH_MAX})"));
    }
    match definition {
        Json::Object(fields) => {
            for (name, field) in fields {
                references(field, depth + 1, named).map_err(|error| format!("field {name}: {error}"))?;
            }
        }
        Json::String(text) => {
            let (mut name, _) = split(text);
            let mut nesting = 0;
            while let Some((_, inner)) = collection(name, nesting)? {
                name = inner;
                nesting += 1;
            }
            if !["string", "integer", "boolean", "float", "object"].contains(&name) {
                named.push(name.to_owned());
            }
        }
        other => return Err(format!("unexpected type: {}", go_type(other))),
    }
    Ok(())
}

/// The type's name in Go, which kro prints.
fn go_type(json: &Json) -> &'static str {
    match json {
        Json::Null => "<nil>",
        Json::Bool(_) => "bool",
        Json::Number(number) if number.is_f64() => "float64",
        Json::Number(_) => "int64",
        Json::String(_) => "string",
        Json::Array(_) => "[]interface {}",
        Json::Object(_) => "map[string]interface {}",
    }
}
