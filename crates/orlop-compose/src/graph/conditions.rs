//! Conditions that authors declare in `schema.status.conditions`.

use std::collections::BTreeSet;

use orlop_cel::ast::{Expr, ExprKind, Literal};
use orlop_cel::{Env, EvalError, Type, Value};
use serde_json::{Value as Json, json};

use crate::expression::{
    CONDITION, CONDITION_FIELDS, Expression, Failure, Identifiers, Scope, condition_type, environment,
    standalone,
};

/// Conditions that the controller computes itself.
pub(crate) const BUILT_IN: [&str; 4] = ["InstanceManaged", "GraphResolved", "ResourcesReady", "Ready"];

/// One entry of the block.
#[derive(Debug)]
pub(crate) struct ConditionEntry {
    expression: Expression,
    /// Types that the text names as literals.
    pub(crate) types: Vec<String>,
}

impl ConditionEntry {
    /// Evaluates the entry to conditions: type, status, reason, message.
    pub(crate) fn evaluate(&self, scope: &Scope<'_>) -> Result<Vec<Json>, Failure> {
        self.expression.evaluate_with(scope, |value| {
            let mut found = Vec::new();
            collect(value, &mut found)?;
            Ok(found)
        })
    }
}

fn collect(value: &Value<'_>, found: &mut Vec<Json>) -> Result<(), EvalError> {
    match value {
        Value::Message(message) if message.message.name == CONDITION => {
            let text = |name: &str| message.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            let (kind, status) = (text("type"), text("status"));
            if kind.is_empty() {
                return Err(EvalError::failed("runtime.newCondition: type must not be empty"));
            }
            if !["True", "False", "Unknown"].contains(&status.as_str()) {
                return Err(EvalError::failed(format!(
                    "runtime.newCondition: status must be True, False or Unknown, got \"{status}\""
                )));
            }
            found.push(json!({
                "type": kind, "status": status, "reason": text("reason"), "message": text("message")}));
            Ok(())
        }
        Value::List(list) => list.iter().try_for_each(|item| collect(&item?, found)),
        Value::Optional(Some(value)) => collect(value, found),
        Value::Optional(None) | Value::Null => Ok(()),
        other => Err(EvalError::failed(format!(
            "condition expressions must return runtime.newCondition(...) or a list of them, got \"{}\"",
            other.type_of()
        ))),
    }
}

/// Compiles the block.
pub(super) fn build(declared: &Json, env: &Env, ids: &BTreeSet<&str>) -> Result<Vec<ConditionEntry>, String> {
    let Some(entries) = declared.as_array() else {
        return Err(format!(
            "status.conditions must be a list, got {}",
            crate::expression::literal_type_name(declared)
        ));
    };
    let mut built = Vec::new();
    let mut types: BTreeSet<String> = BTreeSet::new();
    for entry in entries {
        let text = entry.as_str().unwrap_or_default();
        let text = standalone(text)
            .map_err(|error| format!("failed to parse status.conditions expressions: {error}"))?
            .ok_or(
                "failed to parse status.conditions expressions: only standalone expressions are allowed",
            )?;
        let ast = environment()
            .parse(&text)
            .map_err(|error| format!("failed to parse status.conditions expression \"{text}\": {error}"))?;
        let identifiers = Identifiers::of(&ast);
        let known = |name: &str| name == "schema" || ids.contains(name) || CONDITION_FIELDS.contains(&name);
        let unknown: Vec<&str> =
            identifiers.variables.iter().map(String::as_str).filter(|name| !known(name)).collect();
        if !unknown.is_empty() {
            return Err(format!(
                "status.conditions expression \"{text}\": references unknown identifiers: [{}]",
                unknown.join(" ")
            ));
        }
        let mut named = Vec::new();
        check(&ast.root, &text, &mut named)?;
        for name in &named {
            if !types.insert(name.clone()) {
                return Err(format!(
                    "condition type \"{name}\" is declared by more than one conditions entry"
                ));
            }
        }
        let mut expression = Expression::compile(env, &text).map_err(|error| {
            format!("failed to type-check status.conditions expression \"{text}\": {error}")
        })?;
        expression.variables.retain(|name| !CONDITION_FIELDS.contains(&name.as_str()));
        if !is_condition(expression.result_type()) {
            return Err(format!(
                "condition expressions must return runtime.newCondition(...) or a list of them, got \"{}\"",
                expression.result_type()
            ));
        }
        built.push(ConditionEntry { expression, types: named });
    }
    Ok(built)
}

fn is_condition(ty: &Type) -> bool {
    match ty {
        Type::Dyn => true,
        Type::List(inner) | Type::Optional(inner) => is_condition(inner),
        other => *other == condition_type(),
    }
}

/// Checks calls of `runtime.newCondition` and `runtime.condition` as far as their text tells.
fn check(expr: &Expr, text: &str, types: &mut Vec<String>) -> Result<(), String> {
    let mut below: Vec<&Expr> = Vec::new();
    match &expr.kind {
        ExprKind::Call(call) => {
            let runtime = call
                .target
                .as_deref()
                .is_some_and(|target| matches!(&target.kind, ExprKind::Ident(name) if name == "runtime"));
            match (call.function.as_str(), call.args.as_slice()) {
                ("newCondition", [map]) if runtime => {
                    let found = check_new(map)?;
                    types.extend(found);
                    if let ExprKind::Map(entries) = &map.kind {
                        below.extend(entries.iter().map(|entry| &entry.value));
                    }
                }
                ("condition", [object, name]) if runtime => {
                    let of_schema = matches!(&object.kind, ExprKind::Ident(name) if name == "schema");
                    if let (true, ExprKind::Literal(Literal::String(name))) = (of_schema, &name.kind)
                        && !BUILT_IN.contains(&name.as_str())
                    {
                        return Err(format!(
                            "runtime.condition(schema, \"{name}\"): unknown condition type; only kro's built-in types \
                             (InstanceManaged, GraphResolved, ResourcesReady, Ready) can be read from schema in \
                             expression \"{text}\""
                        ));
                    }
                }
                _ => {
                    below.extend(call.target.as_deref());
                    below.extend(&call.args);
                }
            }
        }
        ExprKind::List(elements) => below.extend(elements.iter().map(|element| &element.value)),
        ExprKind::Map(entries) => below.extend(entries.iter().map(|entry| &entry.value)),
        ExprKind::Comprehension(comprehension) => below.extend([&comprehension.range, &comprehension.body]),
        ExprKind::Bind(bind) => below.extend([&bind.value, &bind.body]),
        ExprKind::OptMap(opt_map) => below.extend([&opt_map.target, &opt_map.body]),
        _ => {}
    }
    below.into_iter().try_for_each(|expr| check(expr, text, types))
}

/// Checks the argument of `runtime.newCondition`; returns its type where that is a literal.
fn check_new(map: &Expr) -> Result<Option<String>, String> {
    let ExprKind::Map(entries) = &map.kind else {
        return Err("runtime.newCondition: the argument must be a map literal".to_owned());
    };
    let mut seen = BTreeSet::new();
    let mut kind = None;
    for entry in entries {
        let ExprKind::Ident(name) = &entry.key.kind else {
            return Err("runtime.newCondition: keys must be bare words".to_owned());
        };
        if !CONDITION_FIELDS.contains(&name.as_str()) {
            return Err(format!("runtime.newCondition: unknown key \"{name}\""));
        }
        if !seen.insert(name.as_str()) {
            return Err(format!("runtime.newCondition: duplicate key \"{name}\""));
        }
        if let ExprKind::Literal(Literal::String(value)) = &entry.value.kind {
            match name.as_str() {
                "type" => kind = Some(value.clone()),
                "status" if !["True", "False", "Unknown"].contains(&value.as_str()) => {
                    return Err(format!(
                        "runtime.newCondition: status must be True, False or Unknown, got \"{value}\""
                    ));
                }
                _ => {}
            }
        }
    }
    match ["type", "status"].iter().find(|name| !seen.contains(**name)) {
        Some(missing) => Err(format!("runtime.newCondition: missing required key \"{missing}\"")),
        None => Ok(kind),
    }
}
