//! Environments: declarations of variables, functions and message types.
//!
//! An [`Env`] is immutable and shared. Building one from libraries declares a few hundred signatures; extending one
//! with variables shares them, so an environment per schema node costs only its variables. Environments do not hold
//! values: those come with each evaluation.

use std::sync::Arc;

use crate::ast::Ast;
use crate::checker::check;
use crate::cost::{CostEstimate, Sizes};
use crate::error::CompileErrors;
use crate::functions::{EvalResult, Functions, Implementation, Overload};
use crate::library::{Library, kubernetes_libraries};
use crate::parser::Macros;
use crate::parser::parse;
use crate::program::Program;
use crate::schema::Schema;
use crate::source::Source;
use crate::types::{MessageType, Type};
use crate::value::Value;

/// Variables, functions and types that expressions may use.
#[derive(Clone, Debug)]
pub struct Env {
    pub(crate) scope: Arc<Scope>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    pub(crate) functions: Arc<Functions>,
    pub(crate) macros: Macros,
    pub(crate) variables: Vec<Variable>,
    messages: Vec<Arc<MessageType>>,
    /// Names below which every message exists with any field: `Object` for `Object.spec`, …
    open_messages: Vec<String>,
}

/// A declared variable.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) declared: Type,
    /// Schema of its JSON, if it is bound to JSON.
    pub(crate) schema: Option<Schema>,
    /// Its sizes, if it has no schema and they are known.
    pub(crate) sizes: Option<Arc<Sizes>>,
}

impl Env {
    /// Returns a builder with the standard library only.
    pub fn builder() -> EnvBuilder {
        let mut scope = Scope::default();
        crate::library::standard::declare(Arc::make_mut(&mut scope.functions));
        EnvBuilder { scope }
    }

    /// Returns a builder with the libraries of Kubernetes 1.`minor`.
    pub fn kubernetes(minor: u32) -> EnvBuilder {
        kubernetes_libraries(minor).into_iter().fold(Self::builder(), EnvBuilder::library)
    }

    /// Returns a builder that starts with these declarations.
    pub fn extend(&self) -> EnvBuilder {
        EnvBuilder { scope: Scope::clone(&self.scope) }
    }

    /// Parses, checks and plans an expression.
    pub fn compile(&self, expression: &str) -> Result<Program, CompileErrors> {
        let source = Source::new(expression);
        let ast = parse(&source, self.scope.macros)?;
        let checked = check(&self.scope, &source, ast)?;
        Program::new(self.clone(), checked)
    }

    /// Parses an expression without checking it.
    pub fn parse(&self, expression: &str) -> Result<Ast, CompileErrors> {
        parse(&Source::new(expression), self.scope.macros)
    }

    /// Checks and prepares a tree that [`Env::parse`] made of `expression`, possibly rewritten since.
    pub fn compile_ast(&self, expression: &str, ast: Ast) -> Result<Program, CompileErrors> {
        let checked = check(&self.scope, &Source::new(expression), ast)?;
        Program::new(self.clone(), checked)
    }

    /// Parses and unparses an expression into canonical form.
    pub fn format(&self, expression: &str) -> Result<String, CompileErrors> {
        parse(&Source::new(expression), self.scope.macros).map(|ast| crate::unparser::unparse(&ast.root))
    }

    /// Estimates the cost of an expression on data that fits the schemas.
    pub fn estimate(&self, expression: &str) -> Result<CostEstimate, CompileErrors> {
        self.compile(expression).map(|program| program.estimate())
    }
}

impl Scope {
    pub(crate) fn variable(&self, name: &str) -> Option<usize> {
        // The last declaration wins, so that an extension can give a name a new type.
        self.variables.iter().rposition(|variable| variable.name == name)
    }

    pub(crate) fn message(&self, name: &str) -> Option<Arc<MessageType>> {
        if let Some(message) = self.messages.iter().find(|message| message.name == name) {
            return Some(message.clone());
        }
        let below =
            |prefix: &String| name.strip_prefix(prefix.as_str()).is_some_and(|rest| rest.starts_with('.'));
        self.open_messages
            .iter()
            .any(|prefix| prefix == name || below(prefix))
            .then(|| Arc::new(MessageType { name: name.to_owned(), fields: None }))
    }
}

/// Collects declarations for an [`Env`].
#[derive(Clone, Debug)]
pub struct EnvBuilder {
    scope: Scope,
}

impl EnvBuilder {
    /// Adds a library.
    #[must_use]
    pub fn library(mut self, library: Library) -> Self {
        library.declare(Arc::make_mut(&mut self.scope.functions), &mut self.scope.macros);
        self
    }

    /// Declares a variable. The name may be qualified: `authorizer.requestResource`.
    #[must_use]
    pub fn variable(mut self, name: impl Into<String>, declared: Type) -> Self {
        self.scope.variables.push(Variable { name: name.into(), declared, schema: None, sizes: None });
        self
    }

    /// Declares a variable whose values are no larger than this.
    #[must_use]
    pub fn sized_variable(mut self, name: impl Into<String>, declared: Type, sizes: Sizes) -> Self {
        let sizes = Some(Arc::new(sizes));
        self.scope.variables.push(Variable { name: name.into(), declared, schema: None, sizes });
        self
    }

    /// Declares a variable bound to JSON of this shape.
    #[must_use]
    pub fn schema(mut self, name: impl Into<String>, schema: &Schema) -> Self {
        let declared = schema.to_type();
        self.scope.variables.push(Variable {
            name: name.into(),
            declared,
            schema: Some(schema.clone()),
            sizes: None,
        });
        self
    }

    /// Declares a variable bound to an optional with JSON of this shape: `oldSelf` under `optionalOldSelf`.
    #[must_use]
    pub fn optional_schema(mut self, name: impl Into<String>, schema: &Schema) -> Self {
        let declared = Type::optional(schema.to_type());
        self.scope.variables.push(Variable {
            name: name.into(),
            declared,
            schema: Some(schema.clone()),
            sizes: None,
        });
        self
    }

    /// Declares a message that expressions can construct. Without fields it takes any field with any value.
    #[must_use]
    pub fn message(mut self, name: impl Into<String>, fields: Option<Vec<(String, Type)>>) -> Self {
        self.scope.messages.push(Arc::new(MessageType { name: name.into(), fields }));
        self
    }

    /// Declares `prefix` and everything below it (`prefix.spec`, …) as messages that take any field.
    #[must_use]
    pub fn open_messages(mut self, prefix: impl Into<String>) -> Self {
        self.scope.open_messages.push(prefix.into());
        self
    }

    /// Declares the types of mutating admission policies: `Object{…}` and `JSONPatch{…}`.
    #[must_use]
    pub fn mutation_types(self) -> Self {
        let fields =
            [("op", Type::String), ("path", Type::String), ("from", Type::String), ("value", Type::Dyn)];
        let fields = fields.map(|(name, field)| (name.to_owned(), field)).into();
        self.open_messages("Object").message("JSONPatch", Some(fields))
    }

    /// Declares a function `name(params…)`, or `params[0].name(…)` where `member` is set.
    #[must_use]
    pub fn function(
        mut self,
        name: &str,
        member: bool,
        params: Vec<Type>,
        result: Type,
        run: impl for<'a> Fn(&[Value<'a>]) -> EvalResult<'a> + Send + Sync + 'static,
    ) -> Self {
        let kinds: Vec<String> = params.iter().map(Type::to_string).collect();
        let id = format!("{name}_{}", kinds.join("_"));
        let overload =
            Overload { id, member, params, result, implementation: Implementation::Custom(Arc::new(run)) };
        Arc::make_mut(&mut self.scope.functions).add(name, overload);
        self
    }

    /// Builds the environment.
    pub fn build(self) -> Env {
        Env { scope: Arc::new(self.scope) }
    }
}
