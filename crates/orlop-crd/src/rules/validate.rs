//! Validation of rules when a definition is written: compilation and cost estimates.

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

/// StoredExpressions of the stored definition, for ratcheting.
pub(crate) struct StoredExpressions<'a> {
    pub(crate) stored_rules: &'a HashSet<String>,
    pub(crate) stored_messages: &'a HashSet<String>,
    /// The schema is unchanged, so its cost is not checked again.
    pub(crate) cost_was_accepted: bool,
}

#[derive(Default)]
pub(crate) struct RuleErrors {
    pub(crate) errors: Vec<FieldError>,
    /// Errors about the total cost of all rules.
    pub(crate) total: Vec<FieldError>,
}

/// Compiles every rule of a structural schema. Nodes with errors at or below them are skipped, because their CEL
/// schema may not be what the author meant.
pub(crate) fn validate_rules(
    schema: &Value,
    path: &FieldPath,
    expressions: &StoredExpressions<'_>,
    schema_errors: &[FieldError],
) -> RuleErrors {
    let mut validator =
        Validator { expressions, schema_errors, total: 0, expensive: Vec::new(), errors: Vec::new() };
    let root = NodeContext {
        path: path.clone(),
        parent: None,
        is_resource: true,
        cardinality: Some(1),
        uncorrelatable: None,
    };
    validator.node(schema, root);
    let mut total = Vec::new();
    if validator.total > SCHEMA_COST_MAX {
        let detail =
            "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        total.extend(validator.expensive.iter().map(|(path, _)| FieldError::forbidden(path, detail)));
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        total.push(FieldError::forbidden(path, too_expensive(what, validator.total, SCHEMA_COST_MAX)));
    }
    RuleErrors { errors: validator.errors, total }
}

/// Context of a schema node.
struct NodeContext {
    path: FieldPath,
    /// CEL schema of the node, if an ancestor has rules.
    parent: Option<Schema>,
    is_resource: bool,
    /// Maximal cardinality of the node; `None` if unbounded.
    cardinality: Option<u64>,
    /// Nearest uncorrelatable ancestor.
    uncorrelatable: Option<FieldPath>,
}

struct Validator<'a> {
    expressions: &'a StoredExpressions<'a>,
    schema_errors: &'a [FieldError],
    total: u64,
    expensive: Vec<(FieldPath, u64)>,
    errors: Vec<FieldError>,
}

impl Validator<'_> {
    fn node(&mut self, source: &Value, context: NodeContext) {
        if !super::has_rules(source) {
            return;
        }
        let rules = list(source, "x-kubernetes-validations");
        // Large schemas are parsed only where a rule needs them.
        let visible = match &context.parent {
            Some(visible) => Some(visible.clone()),
            None if rules.is_empty() => None,
            None => Schema::from_openapi("selfType", source, context.is_resource),
        };
        let below = |path: FieldPath, parent: Option<Schema>, nested: &Value, uncorrelatable| NodeContext {
            path,
            parent,
            is_resource: flag(nested, "x-kubernetes-embedded-resource"),
            cardinality: context
                .cardinality
                .zip(elements_max(source))
                .map(|(outer, most)| outer.saturating_mul(most)),
            uncorrelatable,
        };
        let elements = || visible.as_ref().and_then(Schema::elements).cloned();
        if let Some(values) = source.get("additionalProperties").filter(|values| values.is_object()) {
            let path = context.path.child("additionalProperties");
            self.node(values, below(path, elements(), values, context.uncorrelatable.clone()));
        }
        // Maps of an unknown map type are uncorrelatable.
        let known = matches!(text(source, "x-kubernetes-map-type"), "" | "granular" | "atomic");
        let uncorrelatable =
            context.uncorrelatable.clone().or_else(|| (!known).then(|| context.path.clone()));
        for (name, property) in entries(source, "properties") {
            let field = visible.as_ref().and_then(|visible| visible.field(&escape(name)?)).cloned();
            let path = context.path.child("properties").key(name);
            self.node(property, below(path, field, property, uncorrelatable.clone()));
        }
        if let Some(items) = source.get("items").filter(|items| items.is_object()) {
            let is_map = text(source, "x-kubernetes-list-type") == "map";
            let uncorrelatable =
                context.uncorrelatable.clone().or_else(|| (!is_map).then(|| context.path.clone()));
            self.node(items, below(context.path.child("items"), elements(), items, uncorrelatable));
        }
        if !rules.is_empty() && !self.has_errors(&context.path) {
            self.rules(rules, source, visible, &context);
        }
    }

    fn has_errors(&self, path: &FieldPath) -> bool {
        let within = |error: &FieldError| {
            let rest = error.field.as_str().strip_prefix(path.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        self.schema_errors.iter().any(within)
    }

    fn rules(&mut self, rules: &[Value], source: &Value, visible: Option<Schema>, context: &NodeContext) {
        let path = context.path.child("x-kubernetes-validations");
        let Some(visible) = visible else {
            let detail = "internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations";
            self.errors.push(FieldError::internal(&path, detail));
            return;
        };
        let expressions = self.expressions;
        let base = |expression: &str| -> &'static Env {
            let known = expressions.stored_rules.contains(expression)
                || expressions.stored_messages.contains(expression);
            if known { stored(expression) } else { new(expression) }
        };
        let cardinality = context.cardinality.unwrap_or_else(|| visible.cardinality_max());
        for (index, rule) in rules.iter().enumerate() {
            let compiled = compile::rule(rule, source, &visible, &base);
            self.rule(rule, &compiled, cardinality, &path.index(index), context);
        }
    }

    fn rule(
        &mut self,
        rule: &Value,
        compiled: &Compiled,
        cardinality: u64,
        path: &FieldPath,
        context: &NodeContext,
    ) {
        let rule_path = path.child("rule");
        let limited = !self.expressions.cost_was_accepted;
        match &compiled.program {
            Ok(program) => {
                let cost =
                    program.as_ref().map_or(0, |program| program.estimate().max.saturating_mul(cardinality));
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
            if let Some(within) = &context.uncorrelatable {
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
        // A factor close to 1 needs more digits than `1.0x`.
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}
