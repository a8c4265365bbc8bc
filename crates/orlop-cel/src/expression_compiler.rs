//! Compilation of the expressions of admission policies, with Kubernetes' error texts.
//!
//! ```
//! use orlop_cel::{AdmissionVariables, ExpressionCompiler, ExpressionOrigin, ReturnType};
//!
//! let mut compiler = ExpressionCompiler::with_variables(ExpressionOrigin::Written);
//! let declared = AdmissionVariables { authorizer: true, ..AdmissionVariables::default() };
//! assert!(compiler.compile_variable("name", "request.name", declared).is_ok());
//! assert!(compiler.compile("variables.name != 'a'", declared, ReturnType::Bool).is_ok());
//! let error = compiler.compile("variables.name", declared, ReturnType::Bool).unwrap_err();
//! assert_eq!(error, "must evaluate to bool but got string");
//! ```

use std::collections::{BTreeSet, HashMap};

use crate::admission::{AdmissionVariables, ExpressionOrigin};
use crate::composition::{VARIABLES, VARIABLES_TYPE};
use crate::env::{Env, EnvBuilder};
use crate::error::CompileErrors;
use crate::lexer::{Kind, tokens};
use crate::program::Program;
use crate::schema::Schema;
use crate::source::Source;
use crate::types::{MessageType, Type};

/// Cost limit of one expression.
pub const EXPRESSION_COST_MAX: u64 = 1_000_000;
/// Cost limit of all expressions of a policy, for one binding and parameter.
pub const POLICY_COST_MAX: u64 = 10_000_000;
/// Cost limit of all match conditions of a policy or webhook.
pub const MATCH_CONDITIONS_COST_MAX: u64 = 2_500_000;

/// Types that an expression may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReturnType {
    /// `bool`
    Bool,
    /// `string`
    String,
    /// `string` or `null`
    StringOrNull,
    /// Any type.
    Any,
    /// `Object`: an apply configuration.
    ApplyConfiguration,
    /// `list(JSONPatch)`
    JsonPatch,
}

impl ReturnType {
    /// Returns an error unless a type is allowed. Types must be equal: `dyn` is not a bool.
    fn check(self, found: &Type) -> Result<(), String> {
        let is_message = |ty: &Type, name: &str| matches!(ty, Type::Message(message) if message.name == name);
        let (fits, expected) = match self {
            Self::Any => return Ok(()),
            Self::Bool => (*found == Type::Bool, "bool"),
            Self::String => (*found == Type::String, "string"),
            Self::StringOrNull => (matches!(found, Type::String | Type::Null), "one of [string null_type]"),
            Self::ApplyConfiguration => (is_message(found, "Object"), "Object"),
            Self::JsonPatch => {
                let fits = matches!(found, Type::List(item) if is_message(item, "JSONPatch"));
                (fits, "list(JSONPatch)")
            }
        };
        if fits {
            Ok(())
        } else {
            Err(format!("must evaluate to {expected} but got {}", declared_name(found)))
        }
    }
}

/// The name of a type as cel-go's `Type.String()` prints it.
fn declared_name(ty: &Type) -> String {
    match ty {
        Type::List(item) => format!("list({})", declared_name(item)),
        Type::Map(key, value) => format!("map({}, {})", declared_name(key), declared_name(value)),
        Type::Optional(value) => format!("optional_type({})", declared_name(value)),
        Type::Type(Some(inner)) => format!("type({})", declared_name(inner)),
        other => other.runtime_name().to_owned(),
    }
}

/// Compiles the expressions of one policy or webhook.
#[derive(Clone, Debug)]
pub struct ExpressionCompiler {
    origin: ExpressionOrigin,
    /// Types of `object` and `oldObject`, and of `params`, where they are known.
    schemas: Option<(Option<Schema>, Option<Schema>)>,
    /// Types of the variables declared so far; `None` if expressions have no `variables`.
    variables: Option<HashMap<String, Type>>,
}

impl ExpressionCompiler {
    /// Returns a compiler of expressions without `variables`.
    pub fn new(origin: ExpressionOrigin) -> Self {
        Self { origin, schemas: None, variables: None }
    }

    /// Returns a compiler of expressions that may reference `variables`.
    pub fn with_variables(origin: ExpressionOrigin) -> Self {
        Self { variables: Some(HashMap::new()), ..Self::new(origin) }
    }

    /// Returns a compiler that checks expressions against the types of objects and parameters. `None` is `dyn`.
    pub fn for_type_checking(object: Option<Schema>, params: Option<Schema>) -> Self {
        Self { schemas: Some((object, params)), ..Self::with_variables(ExpressionOrigin::Stored) }
    }

    /// Sets the origin of the expressions that follow.
    pub fn set_origin(&mut self, origin: ExpressionOrigin) {
        self.origin = origin;
    }

    /// Compiles a variable, and declares it for expressions that are compiled after it.
    pub fn compile_variable(
        &mut self,
        name: &str,
        expression: &str,
        declarations: AdmissionVariables,
    ) -> Result<Program, String> {
        let program = self.compile(expression, declarations, ReturnType::Any);
        let ty = program.as_ref().map_or(Type::Dyn, |program| field_type(program.result_type()));
        if let Some(variables) = &mut self.variables {
            variables.insert(name.to_owned(), ty);
        }
        program
    }

    /// Compiles an expression. The error is the detail of a field error.
    pub fn compile(
        &self,
        expression: &str,
        declarations: AdmissionVariables,
        returns: ReturnType,
    ) -> Result<Program, String> {
        let program =
            self.check(expression, declarations).map_err(|errors| format!("compilation failed: {errors}"))?;
        returns.check(program.result_type())?;
        Ok(program)
    }

    /// Compiles an expression of any type.
    pub fn check(
        &self,
        expression: &str,
        declarations: AdmissionVariables,
    ) -> Result<Program, CompileErrors> {
        let base = Env::admission(self.origin, declarations);
        if self.schemas.is_none() && self.variables.is_none() {
            return base.compile(expression);
        }
        let mut env = base.extend();
        if let Some((object, params)) = &self.schemas {
            if let Some(object) = object {
                env = env.schema("object", object).schema("oldObject", object);
            }
            if let Some(params) = params.as_ref().filter(|_| declarations.params) {
                env = env.schema("params", params);
            }
        }
        if let Some(variables) = &self.variables {
            env = declare_variables(env, variables, expression);
        }
        env.build().compile(expression)
    }
}

/// Declares the variables that an expression mentions. A policy may have very many, and each program keeps its
/// environment.
fn declare_variables(mut env: EnvBuilder, variables: &HashMap<String, Type>, expression: &str) -> EnvBuilder {
    let mut fields = Vec::new();
    for name in mentioned(expression) {
        if let Some(ty) = variables.get(name) {
            fields.push((name.to_owned(), ty.clone()));
            env = env.variable(format!("{VARIABLES}.{name}"), ty.clone());
        }
    }
    let message = MessageType { name: VARIABLES_TYPE.to_owned(), fields: Some(fields) };
    env.variable(VARIABLES, Type::Message(message.into()))
}

/// The names that follow `variables.` anywhere in an expression.
fn mentioned(expression: &str) -> BTreeSet<&str> {
    let mut errors = CompileErrors::new(Source::new(""));
    let tokens = tokens(expression, &mut errors);
    let mut names = BTreeSet::new();
    for (index, token) in tokens.iter().enumerate() {
        if token.kind == Kind::Ident && token.text == VARIABLES {
            let rest = tokens.get(index + 1..).unwrap_or_default();
            let mut rest = rest.iter().skip_while(|token| matches!(token.text, "." | "?"));
            names.extend(rest.next().filter(|token| token.kind == Kind::Ident).map(|token| token.text));
        }
    }
    names
}

/// The type that a variable has as a field. Types without a declaration of their own are `dyn`, as in Kubernetes.
fn field_type(ty: &Type) -> Type {
    match ty {
        Type::List(item) => Type::list(field_type(item)),
        Type::Map(key, value) => Type::map(field_type(key), field_type(value)),
        Type::Null
        | Type::Bool
        | Type::Int
        | Type::Uint
        | Type::Double
        | Type::String
        | Type::Bytes
        | Type::Timestamp
        | Type::Duration => ty.clone(),
        _ => Type::Dyn,
    }
}
