//! Validation of defaults: they are valid under their schema and have no fields to prune.

use crate::field_error::{FieldError, FieldPath, aggregate};
use crate::schema::metadata::validate_default;
use crate::schema::unstructured::{entries, flag, non_null};
use crate::schema::{self, Root, from_openapi};
use serde_json::{Map, Value};

/// A default that is valid under its schema, before CEL rules.
#[derive(Debug)]
pub struct DefaultValue<'a> {
    pub value: &'a Value,
    /// The schema node with the default, as written.
    pub schema: &'a Value,
    /// The node is a whole resource: the root, or an embedded one.
    pub is_resource: bool,
    /// `….default`
    pub path: FieldPath,
}

/// Validates the defaults of a schema. `rules` evaluates the CEL rules of each.
pub fn validate_defaults(
    schema: &Value,
    path: &FieldPath,
    require_pruned: bool,
    rules: &mut dyn FnMut(&DefaultValue<'_>) -> Vec<FieldError>,
) -> Vec<FieldError> {
    let mut walk = Walk { require_pruned, rules, errors: Vec::new() };
    let resource = Resource { schema, way: Vec::new() };
    walk.node(schema, path, true, &resource, false);
    walk.errors
}

/// The nearest enclosing resource of a node, and the path down from it.
#[derive(Clone)]
struct Resource<'a> {
    schema: &'a Value,
    way: Vec<Step<'a>>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Field(&'a str),
    Item,
}

impl<'a> Resource<'a> {
    fn step(&self, step: Step<'a>) -> Self {
        let mut way = self.way.clone();
        way.push(step);
        Self { schema: self.schema, way }
    }

    /// Wraps a value in an object with nothing else along the path.
    fn around(&self, value: &Value) -> Value {
        let wrap = |inner: Value, step: &Step<'_>| match step {
            Step::Field(name) => Value::Object(Map::from_iter([((*name).to_owned(), inner)])),
            Step::Item => Value::Array(vec![inner]),
        };
        let mut object = self.way.iter().rev().fold(value.clone(), wrap);
        if let Some(map) = object.as_object_mut() {
            map.entry("kind").or_insert_with(|| "Validation".into());
            map.entry("apiVersion").or_insert_with(|| "validation/v1".into());
        }
        object
    }
}

struct Walk<'w> {
    require_pruned: bool,
    rules: &'w mut dyn FnMut(&DefaultValue<'_>) -> Vec<FieldError>,
    errors: Vec<FieldError>,
}

impl Walk<'_> {
    fn node<'a>(
        &mut self,
        source: &'a Value,
        path: &FieldPath,
        is_resource: bool,
        within: &Resource<'a>,
        inside_metadata: bool,
    ) {
        let itself = Resource { schema: source, way: Vec::new() };
        let (within, inside_metadata) =
            if is_resource { (&itself, false) } else { (within, inside_metadata) };
        if let Some(value) = non_null(source, "default") {
            let default = DefaultValue { value, schema: source, is_resource, path: path.child("default") };
            let found = self.check(&default, within, inside_metadata);
            self.errors.extend(found);
        }
        // Kubernetes does not validate defaults inside additionalProperties.
        if let Some(items) = source.get("items").filter(|items| items.is_object()) {
            let embedded = flag(items, "x-kubernetes-embedded-resource");
            self.node(items, &path.child("items"), embedded, &within.step(Step::Item), inside_metadata);
        }
        for (name, property) in entries(source, "properties") {
            let meta = is_resource && matches!(name.as_str(), "metadata" | "apiVersion" | "kind");
            let embedded = flag(property, "x-kubernetes-embedded-resource");
            let path = path.child("properties").key(name);
            self.node(property, &path, embedded, &within.step(Step::Field(name)), inside_metadata || meta);
        }
    }

    fn check(
        &mut self,
        default: &DefaultValue<'_>,
        within: &Resource<'_>,
        inside_metadata: bool,
    ) -> Vec<FieldError> {
        let (value, path) = (default.value, &default.path);
        let node = from_openapi(default.schema);
        let mut errors = Vec::new();
        if inside_metadata {
            let problems = validate_default(&within.around(value), &from_openapi(within.schema), true);
            if !problems.is_empty() {
                let detail = format!("must result in valid metadata: {}", aggregate(&problems));
                return vec![FieldError::invalid(path, value.clone(), detail)];
            }
        } else {
            if self.require_pruned {
                let root = if default.is_resource { Root::Resource } else { Root::Plain };
                if !schema::unknown_fields(value, &node, root).is_empty() {
                    errors.push(FieldError::invalid(path, value.clone(), "must not have unknown fields"));
                }
            }
            let problems = validate_default(value, &node, default.is_resource);
            if !problems.is_empty() {
                errors.extend(problems.into_iter().map(|error| beneath(error, path)));
                return errors;
            }
        }
        let problems = schema::validate(value, &node);
        if problems.is_empty() {
            errors.extend((self.rules)(default));
        } else {
            errors.extend(problems.into_iter().map(|error| beneath(error, path)));
        }
        errors
    }
}

/// Prefixes an error's path with the path of the default.
fn beneath(mut error: FieldError, path: &FieldPath) -> FieldError {
    error.field = if error.field.is_nil() { path.clone() } else { path.child(error.field.as_str()) };
    error
}
