//! CEL validation rules (`x-kubernetes-validations`): compiled once, evaluated on every write.
//!
//! `compile.rs` compiles the expressions of one node; `validate.rs` validates rules when a definition is written and
//! estimates their cost; this module holds the tree of compiled rules of a schema, which `evaluate.rs` evaluates on
//! objects.

mod compile;
mod correlation;
mod evaluate;
pub(crate) mod validate;

pub use evaluate::ValidationResult;

use compile::{Compiled, stored};
use orlop_api::schema::Schema;
use orlop_api::schema::unstructured::{entries, list, strings, text};
use orlop_cel::escape;
use serde_json::Value;

/// Runtime cost limit of one rule.
pub(crate) const RULE_COST_MAX: u64 = 1_000_000;
/// Runtime cost budget of all rules of an object.
pub(crate) const OBJECT_COST_MAX: u64 = 10_000_000;

/// The compiled rules of a schema.
#[derive(Debug, Default)]
pub struct Rules {
    root: Option<Node>,
}

/// A schema node with rules, or with descendants that have rules.
#[derive(Debug, Default)]
struct Node {
    /// `type`, for messages.
    kind: Box<str>,
    rules: Vec<Compiled>,
    properties: Vec<(Box<str>, Node)>,
    values: Option<Box<Node>>,
    items: Option<Box<Node>>,
    /// Map keys of a list of type map.
    keys: Vec<Box<str>>,
}

impl Rules {
    /// Compiles the rules of a stored `openAPIV3Schema` with all libraries. A rule that does
    /// not compile fails every object it applies to.
    pub fn compile(schema: &Value) -> Self {
        Self::of_node(schema, true)
    }

    /// Compiles the rules of a node and its descendants.
    pub(crate) fn of_node(schema: &Value, is_resource: bool) -> Self {
        Self { root: node(schema, None, is_resource) }
    }

    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// Evaluates the rules on an object that passed schema validation (see [`orlop_api::schema::blocks_rules`]). `old` is the
    /// object it replaces.
    pub fn validate(&self, schema: &Schema, object: &Value, old: Option<&Value>) -> ValidationResult {
        let mut budget = OBJECT_COST_MAX;
        self.evaluate(schema, object, old, &mut budget)
    }
}

/// Builds a node. Its CEL schema comes from the parent's, if that has one.
fn node(source: &Value, parent: Option<orlop_cel::Schema>, is_resource: bool) -> Option<Node> {
    if !has_rules(source) {
        return None;
    }
    let visible = parent.or_else(|| orlop_cel::Schema::from_openapi("selfType", source, is_resource))?;
    let mut found = Node { kind: text(source, "type").into(), ..Node::default() };
    found.rules = list(source, "x-kubernetes-validations")
        .iter()
        .map(|rule| compile::rule(rule, source, &visible, &stored))
        .collect();
    let embedded = |source: &Value| source.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true));
    for (name, property) in entries(source, "properties") {
        let inner = match escape(name) {
            // Nodes without a CEL schema have no rules to evaluate.
            Some(name) => match visible.field(&name) {
                Some(schema) => Some(schema.clone()),
                None => continue,
            },
            None => None,
        };
        if let Some(inner) = node(property, inner, embedded(property)) {
            found.properties.push((name.as_str().into(), inner));
        }
    }
    let below = |key: &str| {
        let source = source.get(key).filter(|nested| nested.is_object())?;
        node(source, Some(visible.elements()?.clone()), embedded(source)).map(Box::new)
    };
    found.values = below("additionalProperties");
    found.items = below("items");
    if text(source, "x-kubernetes-list-type") == "map" {
        found.keys = strings(source, "x-kubernetes-list-map-keys").map(Into::into).collect();
    }
    Some(found)
}

/// Returns whether a node or a descendant has rules.
fn has_rules(source: &Value) -> bool {
    !list(source, "x-kubernetes-validations").is_empty()
        || ["items", "additionalProperties"].iter().any(|key| source.get(*key).is_some_and(has_rules))
        || entries(source, "properties").any(|(_, property)| has_rules(property))
}
