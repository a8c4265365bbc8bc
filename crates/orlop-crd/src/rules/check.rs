//! Rules when a definition is written: whether they compile, and what they may cost.

use super::compile::{self, Compiled, new, stored};
use orlop_api::field_error::{FieldError, FieldPath};
use orlop_api::schema::structural::format_rule;
use orlop_api::schema::unstructured::{entries, flag, list, text};
use orlop_cel::{Env, Schema, escape};
use serde_json::Value;
use std::collections::HashSet;

/// Limit on the estimated cost of one expression, times its cardinality.
const EXPRESSION_COST_MAX: u64 = 10_000_000;
/// Limit on the estimated cost of all expressions of a schema.
const SCHEMA_COST_MAX: u64 = 100_000_000;
/// Number of most expensive rules to name when the schema's limit is exceeded.
const NAMED_MAX: usize = 4;

/// Expressions of the stored definition, for ratcheting.
pub(crate) struct Expressions<'a> {
    pub(crate) known_rules: &'a HashSet<String>,
    pub(crate) known_messages: &'a HashSet<String>,
    /// The schema did not change, so what its rules cost was accepted before.
    pub(crate) cost_was_accepted: bool,
}

#[derive(Default)]
pub(crate) struct Checked {
    pub(crate) errors: Vec<FieldError>,
    /// Errors about the total cost of all rules.
    pub(crate) total: Vec<FieldError>,
}

/// Compiles every rule of a schema that is structural. Nodes with errors at or below them are left alone: what
/// expressions see of them may not be what their author meant.
pub(crate) fn check(
    schema: &Value,
    path: &FieldPath,
    expressions: &Expressions<'_>,
    schema_errors: &[FieldError],
) -> Checked {
    let mut walk = Walk { expressions, schema_errors, total: 0, expensive: Vec::new(), errors: Vec::new() };
    let root = Place {
        path: path.clone(),
        parent: None,
        is_resource: true,
        cardinality: Some(1),
        uncorrelatable: None,
    };
    walk.node(schema, root);
    let mut total = Vec::new();
    if walk.total > SCHEMA_COST_MAX {
        let detail =
            "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        total.extend(walk.expensive.iter().map(|(path, _)| FieldError::forbidden(path, detail)));
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        total.push(FieldError::forbidden(path, too_expensive(what, walk.total, SCHEMA_COST_MAX)));
    }
    Checked { errors: walk.errors, total }
}

/// Context of a schema node.
struct Place {
    path: FieldPath,
    /// CEL schema of the node, if an ancestor has rules.
    parent: Option<Schema>,
    is_resource: bool,
    /// Maximal cardinality of the node; `None` if unbounded.
    cardinality: Option<u64>,
    /// The nearest node above whose parts cannot be told apart from one write to the next.
    uncorrelatable: Option<FieldPath>,
}

struct Walk<'a> {
    expressions: &'a Expressions<'a>,
    schema_errors: &'a [FieldError],
    total: u64,
    expensive: Vec<(FieldPath, u64)>,
    errors: Vec<FieldError>,
}

impl Walk<'_> {
    fn node(&mut self, source: &Value, place: Place) {
        if !super::has_rules(source) {
            return;
        }
        let rules = list(source, "x-kubernetes-validations");
        // Large schemas are read only where a rule needs them.
        let visible = match &place.parent {
            Some(visible) => Some(visible.clone()),
            None if rules.is_empty() => None,
            None => Schema::from_openapi("selfType", source, place.is_resource),
        };
        let below = |path: FieldPath, parent: Option<Schema>, nested: &Value, uncorrelatable| Place {
            path,
            parent,
            is_resource: flag(nested, "x-kubernetes-embedded-resource"),
            cardinality: place
                .cardinality
                .zip(elements_max(source))
                .map(|(outer, most)| outer.saturating_mul(most)),
            uncorrelatable,
        };
        let elements = || visible.as_ref().and_then(Schema::elements).cloned();
        if let Some(values) = source.get("additionalProperties").filter(|values| values.is_object()) {
            let path = place.path.child("additionalProperties");
            self.node(values, below(path, elements(), values, place.uncorrelatable.clone()));
        }
        // Maps of a type that nobody knows cannot be told apart by their keys.
        let known = matches!(text(source, "x-kubernetes-map-type"), "" | "granular" | "atomic");
        let uncorrelatable = place.uncorrelatable.clone().or_else(|| (!known).then(|| place.path.clone()));
        for (name, property) in entries(source, "properties") {
            let field = visible.as_ref().and_then(|visible| visible.field(&escape(name)?)).cloned();
            let path = place.path.child("properties").key(name);
            self.node(property, below(path, field, property, uncorrelatable.clone()));
        }
        if let Some(items) = source.get("items").filter(|items| items.is_object()) {
            let is_map = text(source, "x-kubernetes-list-type") == "map";
            let uncorrelatable =
                place.uncorrelatable.clone().or_else(|| (!is_map).then(|| place.path.clone()));
            self.node(items, below(place.path.child("items"), elements(), items, uncorrelatable));
        }
        if !rules.is_empty() && !self.has_errors(&place.path) {
            self.rules(rules, source, visible, &place);
        }
    }

    fn has_errors(&self, path: &FieldPath) -> bool {
        let within = |error: &FieldError| {
            let rest = error.field.as_str().strip_prefix(path.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        self.schema_errors.iter().any(within)
    }

    fn rules(&mut self, rules: &[Value], source: &Value, visible: Option<Schema>, place: &Place) {
        let path = place.path.child("x-kubernetes-validations");
        let Some(visible) = visible else {
            let detail = "internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations";
            self.errors.push(FieldError::internal(&path, detail));
            return;
        };
        let expressions = self.expressions;
        let base = |expression: &str| -> &'static Env {
            let known = expressions.known_rules.contains(expression)
                || expressions.known_messages.contains(expression);
            if known { stored(expression) } else { new(expression) }
        };
        let often = place.cardinality.unwrap_or_else(|| visible.cardinality_max());
        for (index, rule) in rules.iter().enumerate() {
            let compiled = compile::rule(rule, source, &visible, &base);
            self.rule(rule, &compiled, often, &path.index(index), place);
        }
    }

    fn rule(&mut self, rule: &Value, compiled: &Compiled, often: u64, path: &FieldPath, place: &Place) {
        let rule_path = path.child("rule");
        let limited = !self.expressions.cost_was_accepted;
        match &compiled.program {
            Ok(program) => {
                let cost = program.as_ref().map_or(0, |program| program.estimate().max.saturating_mul(often));
                if limited && cost > EXPRESSION_COST_MAX {
                    let detail = too_expensive("estimated rule cost", cost, EXPRESSION_COST_MAX);
                    self.errors.push(FieldError::forbidden(&rule_path, detail));
                }
                self.observe(&rule_path, cost);
            }
            Err(problem) => {
                self.errors.push(FieldError::invalid_printed(
                    &rule_path,
                    format_rule(rule),
                    problem.as_str(),
                ));
            }
        }
        let message_path = path.child("messageExpression");
        match &compiled.message_program {
            Ok(None) => {}
            Ok(Some(program)) => {
                let cost = program.estimate().max;
                if limited && cost > EXPRESSION_COST_MAX {
                    let detail = too_expensive("estimated messageExpression cost", cost, EXPRESSION_COST_MAX);
                    self.errors.push(FieldError::forbidden(&message_path, detail));
                }
                self.observe(&message_path, cost);
            }
            Err(problem) => {
                self.errors.push(FieldError::invalid_printed(
                    &message_path,
                    format_rule(rule),
                    problem.as_str(),
                ));
            }
        }
        if compiled.uses_old_self {
            if let Some(within) = &place.uncorrelatable {
                let detail = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {within}"
                );
                self.errors.push(FieldError::invalid(&rule_path, text(rule, "rule"), detail));
            }
        } else if let Some(optional) = rule.get("optionalOldSelf").filter(|optional| optional.is_boolean()) {
            let detail = "may not be set if oldSelf is not used in rule";
            self.errors.push(FieldError::invalid(&path.child("optionalOldSelf"), optional.clone(), detail));
        }
    }

    fn observe(&mut self, path: &FieldPath, cost: u64) {
        self.total = self.total.saturating_add(cost);
        if cost < SCHEMA_COST_MAX / 100 {
            return;
        }
        self.expensive.push((path.clone(), cost));
        self.expensive.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
        self.expensive.truncate(NAMED_MAX);
    }
}

/// Returns the maximal number of elements of a node; `None` if unbounded.
fn elements_max(source: &Value) -> Option<u64> {
    let limit =
        |key: &str| source.get(key).and_then(Value::as_i64).map(|limit| u64::try_from(limit).unwrap_or(0));
    match text(source, "type") {
        "object" if source.get("additionalProperties").is_some_and(|values| !values.is_null()) => {
            limit("maxProperties")
        }
        "array" => limit("maxItems"),
        _ => Some(1),
    }
}

fn too_expensive(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        // Not a factor of 1.0, which would say nothing.
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}
