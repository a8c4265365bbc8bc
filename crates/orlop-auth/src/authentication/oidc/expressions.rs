//! CEL expressions over claims and users.

use std::sync::LazyLock;

use orlop_cel::{
    Activation, Budget, Env, Program, Schema, Type,
    ast::{Expr, ExprKind},
};
use serde_json::{Map, Value, json};

/// Minor version of Kubernetes whose CEL libraries expressions may use.
const MINOR: u32 = 37;
/// Cost of one expression.
const COST_MAX: u64 = 10_000_000;

static CLAIMS: LazyLock<Env> =
    LazyLock::new(|| Env::kubernetes(MINOR).variable("claims", Type::map(Type::String, Type::Dyn)).build());
static USER: LazyLock<Option<Env>> = LazyLock::new(|| {
    let texts = json!({"type": "array", "items": {"type": "string"}});
    let user = json!({"type": "object", "properties": {
        "username": {"type": "string"}, "uid": {"type": "string"}, "groups": texts,
        "extra": {"type": "object", "additionalProperties": texts},
    }});
    let schema = Schema::from_openapi("kubernetes.UserInfo", &user, false)?;
    Some(Env::kubernetes(MINOR).schema("user", &schema).build())
});

/// A compiled expression.
#[derive(Debug)]
pub(super) struct Expression {
    program: Program,
    text: String,
}

impl Expression {
    /// Compiles an expression over `claims` of any type.
    pub(super) fn over_claims(text: &str) -> Result<Self, String> {
        Self::compile(&CLAIMS, text)
    }

    /// Compiles a condition over `claims`.
    pub(super) fn claims_condition(text: &str) -> Result<Self, String> {
        Self::compile(&CLAIMS, text)?.condition()
    }

    /// Compiles a condition over `user`.
    pub(super) fn user_condition(text: &str) -> Result<Self, String> {
        let env = USER.as_ref().ok_or("unexpected error loading CEL environment")?;
        Self::compile(env, text)?.condition()
    }

    fn compile(env: &Env, text: &str) -> Result<Self, String> {
        let program = env.compile(text).map_err(|errors| format!("compilation failed: {errors}"))?;
        Ok(Self { program, text: text.to_owned() })
    }

    fn condition(self) -> Result<Self, String> {
        match self.program.result_type() {
            Type::Bool => Ok(self),
            _ => Err("must evaluate to bool".to_owned()),
        }
    }

    /// Returns the text.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Evaluates the expression with one variable.
    pub(super) fn evaluate(&self, variable: &str, value: &Value) -> Result<Value, String> {
        let failed =
            |error: &dyn std::fmt::Display| format!("expression '{}' resulted in error: {error}", self.text);
        let activation = Activation::new().json(variable, value);
        let mut budget = Budget::new(COST_MAX);
        let result = self.program.evaluate(&activation, &mut budget).map_err(|error| failed(&error))?;
        result.to_json().map_err(|error| failed(&error))
    }

    /// Returns true if the expression selects a field of `claims`.
    pub(super) fn uses_claim(&self, field: &str) -> bool {
        CLAIMS.parse(&self.text).is_ok_and(|ast| selects(&ast.root, field))
    }
}

/// Returns true if `claims.field` or `claims.?field` is in an expression.
fn selects(expression: &Expr, field: &str) -> bool {
    let within = |expression: &Expr| selects(expression, field);
    match &expression.kind {
        ExprKind::Literal(_) | ExprKind::Ident(_) => false,
        ExprKind::Select(select) => {
            let is_claims = matches!(&select.operand.kind, ExprKind::Ident(name) if name == "claims");
            (is_claims && select.field == field) || within(&select.operand)
        }
        ExprKind::Call(call) => call.args.iter().any(within) || call.target.as_deref().is_some_and(within),
        ExprKind::List(elements) => elements.iter().any(|element| within(&element.value)),
        ExprKind::Map(entries) => entries.iter().any(|entry| within(&entry.key) || within(&entry.value)),
        ExprKind::Message(message) => message.fields.iter().any(|field| within(&field.value)),
        ExprKind::Comprehension(comprehension) => {
            within(&comprehension.range)
                || comprehension.filter.as_ref().is_some_and(within)
                || within(&comprehension.body)
        }
        ExprKind::Bind(bind) => within(&bind.value) || within(&bind.body),
        ExprKind::OptMap(map) => within(&map.target) || within(&map.body),
    }
}

/// Adds fields under their escaped names (`a__dot__b` for `a.b`), by which expressions select what is no identifier.
pub(super) fn with_escaped_names(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut all = Map::new();
            for (name, field) in fields {
                let field = with_escaped_names(field);
                if let Some(escaped) = orlop_cel::escape(&name).filter(|escaped| *escaped != name) {
                    all.insert(escaped.to_string(), field.clone());
                }
                all.insert(name, field);
            }
            Value::Object(all)
        }
        Value::Array(items) => Value::Array(items.into_iter().map(with_escaped_names).collect()),
        other => other,
    }
}
