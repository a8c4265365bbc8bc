//! Rules (`x-kubernetes-validations`): compiled once, run on every write.
//!
//! `compile.rs` turns the expressions of one node into programs; `check.rs` does so when a definition is written, and
//! says what is wrong with them and what they may cost; here is the tree of programs that a version's objects are run
//! through, and `run.rs` runs it.

pub(crate) mod check;
mod compile;
mod correlation;
mod run;

pub use run::ValidationResult;

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

/// A node of the schema that has rules, or has them below.
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
    /// Compiles the rules of an `openAPIV3Schema` that was stored: with everything the language has. A rule that does
    /// not compile fails every object it applies to.
    pub fn compile(schema: &Value) -> Self {
        Self::of_node(schema, true)
    }

    /// Compiles the rules of some node and what is below.
    pub(crate) fn of_node(schema: &Value, is_resource: bool) -> Self {
        Self { root: node(schema, None, is_resource) }
    }

    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// Runs the rules over an object that has the right shape: [`orlop_api::schema::blocks_rules`] tells. `old` is what
    /// it replaces; `schema` is the object's.
    pub fn validate(&self, schema: &Schema, object: &Value, old: Option<&Value>) -> ValidationResult {
        let mut budget = OBJECT_COST_MAX;
        self.run(schema, object, old, &mut budget)
    }
}

/// A node whose parent's type is known to expressions takes its own from there.
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
            // What expressions cannot see has no rules that run.
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
