//! Compilation of one rule.

use orlop_api::schema::structural::resolve;
use orlop_api::schema::unstructured::text;
use orlop_cel::{Env, Program, Schema, Type};
use serde_json::Value;
use std::sync::LazyLock;

/// Minor version of Kubernetes whose CEL libraries stored expressions may use.
const MINOR: u32 = 37;

// A few hundred signatures, shared by the environments of all schemas.
static STORED: LazyLock<Env> = LazyLock::new(|| Env::kubernetes(MINOR).build());
static NEW: LazyLock<Env> = LazyLock::new(|| Env::kubernetes(MINOR - 1).build());

/// Environment of stored expressions: all libraries.
pub(super) fn stored(_expression: &str) -> &'static Env {
    &STORED
}

/// Environment of new expressions: the libraries of the previous minor version, so that a downgrade
/// remains possible.
pub(super) fn new(_expression: &str) -> &'static Env {
    &NEW
}

/// A compiled rule.
#[derive(Debug)]
pub(super) struct Compiled {
    /// `None` if the rule is empty.
    pub(super) program: Result<Option<Program>, String>,
    /// Compiled `messageExpression`.
    pub(super) message_program: Result<Option<Program>, String>,
    pub(super) uses_old_self: bool,
    pub(super) optional_old_self: bool,
    /// `fieldPath`, relative to the node.
    pub(super) field_path: String,
    pub(super) rule: Box<str>,
    pub(super) message: Box<str>,
    pub(super) message_expression: Box<str>,
    pub(super) reason: Box<str>,
}

impl Compiled {
    /// Static failure message.
    pub(super) fn failure(&self) -> String {
        if self.message.is_empty() { format!("failed rule: {}", self.name()) } else { self.name().to_owned() }
    }

    /// Name of the rule in error messages.
    pub(super) fn name(&self) -> &str {
        if self.message.is_empty() { self.rule.trim() } else { self.message.trim() }
    }
}

/// Compiles a rule of the node `source`, declared in CEL as `schema`. `base` selects the environment.
pub(super) fn rule(
    rule: &Value,
    source: &Value,
    schema: &Schema,
    base: &dyn Fn(&str) -> &'static Env,
) -> Compiled {
    let optional_old_self = rule.get("optionalOldSelf") == Some(&Value::Bool(true));
    let expression = text(rule, "rule");
    let message_expression = text(rule, "messageExpression");
    let scoped = |expression: &str| {
        let env = base(expression).extend().schema("self", schema);
        let env = if optional_old_self {
            env.optional_schema("oldSelf", schema)
        } else {
            env.schema("oldSelf", schema)
        };
        env.build()
    };
    let program = if expression.trim().is_empty() {
        Ok(None)
    } else {
        match scoped(expression).compile(expression) {
            Err(errors) => Err(format!("compilation failed: {errors}")),
            Ok(program) if *program.result_type() != Type::Bool => {
                Err("cel expression must evaluate to a bool".to_owned())
            }
            Ok(program) => Ok(Some(program)),
        }
    };
    let compiled = matches!(program, Ok(Some(_)));
    let message_program = if message_expression.is_empty() || !compiled {
        Ok(None)
    } else {
        match scoped(message_expression).compile(message_expression) {
            Err(errors) => Err(format!("messageExpression compilation failed: {errors}")),
            Ok(program) if *program.result_type() != Type::String => {
                Err("messageExpression must evaluate to a string".to_owned())
            }
            Ok(program) => Ok(Some(program)),
        }
    };
    let field_path = Some(text(rule, "fieldPath")).filter(|path| !path.is_empty());
    let field_path = field_path.and_then(|path| resolve(path, source, true).ok());
    Compiled {
        uses_old_self: matches!(&program, Ok(Some(program)) if program.uses("oldSelf")),
        program,
        message_program,
        optional_old_self,
        field_path: field_path.map(|(path, _)| path.as_str().to_owned()).unwrap_or_default(),
        rule: expression.into(),
        message: text(rule, "message").into(),
        message_expression: message_expression.into(),
        reason: text(rule, "reason").into(),
    }
}
