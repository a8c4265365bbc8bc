//! The type checker: assigns a type and a reference to every node.
//!
//! It walks the AST once and collects all errors. A node with an error gets the type `!error!`, which is assignable
//! to everything, so that each error is reported once. Types (for the cost estimator) and references (for the planner)
//! are kept beside the AST in [`Checked`]. Values are not checked, except literal arguments (see [`literals`]).

mod call;
mod comprehension;
mod literals;
pub(crate) mod unify;

use std::sync::Arc;

use crate::ast::{Ast, Entry, Expr, ExprId, ExprKind, Literal, Message, Select, SelectMode};
use crate::env::Scope;
use crate::error::CompileErrors;
use crate::functions::Function;
use crate::parser::qualified_name;
use crate::source::Source;
use crate::types::Type;
use unify::{Substitutions, is_as_general};

/// A checked expression.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) ast: Ast,
    pub(crate) types: Vec<Type>,
    pub(crate) references: Vec<Reference>,
    /// Number of local variables.
    pub(crate) slots: usize,
    pub(crate) source: Source,
}

impl Checked {
    pub(crate) fn type_of(&self, expr: &Expr) -> &Type {
        self.types.get(expr.id as usize).unwrap_or(&Type::Dyn)
    }

    pub(crate) fn reference(&self, id: ExprId) -> &Reference {
        self.references.get(id as usize).unwrap_or(&Reference::Structure)
    }
}

/// Resolved reference of an AST node.
#[derive(Clone, Debug, Default)]
pub(crate) enum Reference {
    /// Itself.
    #[default]
    Structure,
    /// The environment's variable of this index.
    Variable(usize),
    /// The local variable of this slot.
    Local(usize),
    /// A type by name.
    TypeName(Type),
    /// Overloads of a function, by index; `static_target` if what looks like a target is part of the name.
    Call { function: Arc<Function>, overloads: Vec<usize>, static_target: bool },
    /// The slots of the variables a macro introduces.
    Slots(usize, usize),
    /// The message type constructed.
    Message(Type),
}

/// Checks `ast` against the declarations of `scope`.
pub(crate) fn check(scope: &Scope, source: &Source, ast: Ast) -> Result<Checked, CompileErrors> {
    let count = ast.positions.len();
    let mut checker = Checker {
        scope,
        ast: &ast,
        errors: CompileErrors::new(source.clone()),
        substitutions: Substitutions::default(),
        locals: Vec::new(),
        slots: 0,
        types: vec![Type::Error; count],
        references: vec![Reference::Structure; count],
    };
    checker.check(&ast.root);
    let Checker { errors, substitutions, slots, types, references, .. } = checker;
    let types = types.iter().map(|ty| substitutions.apply(ty, true)).collect();
    let failed = !errors.is_empty();
    let checked = Checked { ast, types, references, slots, source: source.clone() };
    if failed {
        return errors.into_result(checked);
    }
    let errors = literals::validate(&checked);
    errors.into_result(checked)
}

/// A variable of a macro. Slots are never shared, because a bound value may be computed long after it was bound.
struct Local {
    name: String,
    ty: Type,
    slot: usize,
}

struct Checker<'c> {
    scope: &'c Scope,
    ast: &'c Ast,
    errors: CompileErrors,
    substitutions: Substitutions,
    /// Names that macros introduced, innermost last.
    locals: Vec<Local>,
    slots: usize,
    types: Vec<Type>,
    references: Vec<Reference>,
}

impl Checker<'_> {
    /// Checks a node and those below; returns its type.
    fn check(&mut self, expr: &Expr) -> Type {
        let ty = match &expr.kind {
            ExprKind::Literal(literal) => literal_type(literal),
            ExprKind::Ident(name) => self.identifier(expr, name),
            ExprKind::Select(select) => self.select(expr, select),
            ExprKind::Call(call) => self.call(expr, call),
            ExprKind::List(elements) => {
                let values: Vec<_> =
                    elements.iter().map(|element| (&element.value, element.optional)).collect();
                let mut item = None;
                for (value, optional) in values {
                    let ty = self.element(value, optional);
                    item = Some(self.join(item, ty));
                }
                Type::list(item.unwrap_or_else(|| self.substitutions.fresh()))
            }
            ExprKind::Map(entries) => self.map(entries),
            ExprKind::Message(message) => self.message(expr, message),
            ExprKind::Comprehension(comprehension) => self.comprehension(expr, comprehension),
            ExprKind::Bind(bind) => self.bind(expr, bind),
            ExprKind::OptMap(opt_map) => self.opt_map(expr, opt_map),
        };
        self.types[expr.id as usize] = ty.clone();
        ty
    }

    fn report(&mut self, id: ExprId, message: impl Into<String>) {
        self.errors.report(self.ast.position(id), message);
    }

    fn set_reference(&mut self, id: ExprId, reference: Reference) {
        self.references[id as usize] = reference;
    }

    fn resolved(&self, ty: &Type) -> Type {
        self.substitutions.apply(ty, false)
    }

    fn undeclared(&mut self, id: ExprId, name: &str) -> Type {
        self.report(id, format!("undeclared reference to '{name}' (in container '')"));
        Type::Error
    }

    fn mismatch(&mut self, id: ExprId, expected: &Type, found: &Type) {
        let (expected, found) = (self.resolved(expected), self.resolved(found));
        self.report(id, format!("expected type '{expected}' but found '{found}'"));
    }

    // ---- names ----

    fn identifier(&mut self, expr: &Expr, name: &str) -> Type {
        match self.name(expr.id, name) {
            Some(ty) => ty,
            None => self.undeclared(expr.id, name),
        }
    }

    /// The type of a name, simple or qualified. A leading dot skips local variables.
    fn name(&mut self, id: ExprId, name: &str) -> Option<Type> {
        let (global, name) = match name.strip_prefix('.') {
            Some(name) => (true, name),
            None => (false, name),
        };
        let local = self.locals.iter().rev().find(|local| !global && local.name == name);
        if let Some((slot, ty)) = local.map(|local| (local.slot, local.ty.clone())) {
            self.set_reference(id, Reference::Local(slot));
            return Some(ty);
        }
        if let Some(index) = self.scope.variable(name) {
            self.set_reference(id, Reference::Variable(index));
            return Some(self.scope.variables[index].declared.clone());
        }
        let ty = Type::from_name(name).or_else(|| self.scope.message(name).map(Type::Message))?;
        self.set_reference(id, Reference::TypeName(ty.clone()));
        Some(Type::of(ty))
    }

    /// Returns whether the first segment of a qualified name is a local variable, which shadows qualified names.
    fn starts_locally(&self, qualified: &str) -> bool {
        let first = qualified.split('.').next().unwrap_or_default();
        self.locals.iter().any(|local| local.name == first)
    }

    // ---- fields ----

    fn select(&mut self, expr: &Expr, select: &Select) -> Type {
        if select.mode == SelectMode::Value {
            let qualified = qualified_name(expr).filter(|name| !self.starts_locally(name));
            if let Some(ty) = qualified.and_then(|name| self.name(expr.id, &name)) {
                return ty;
            }
        }
        let operand = self.check(&select.operand);
        let operand = self.resolved(&operand);
        let (target, was_optional) = match &operand {
            Type::Optional(inner) => (Type::clone(inner), true),
            other => (other.clone(), false),
        };
        let field = self.field(expr.id, &target, &select.field);
        match select.mode {
            SelectMode::Presence => Type::Bool,
            SelectMode::Value if !was_optional => field,
            _ => Type::optional(field),
        }
    }

    fn field(&mut self, id: ExprId, target: &Type, field: &str) -> Type {
        let found = match target {
            Type::Map(_, value) => Some(Type::clone(value)),
            Type::Object(schema) => match schema.field(field) {
                Some(found) => Some(found.to_type()),
                None => schema.is_open().then_some(Type::Dyn),
            },
            Type::Message(message) => match &message.fields {
                Some(fields) => fields.iter().find(|(name, _)| name == field).map(|(_, ty)| ty.clone()),
                None => Some(Type::Dyn),
            },
            Type::Param(_) => {
                self.substitutions.assign(&Type::Dyn, target);
                Some(Type::Dyn)
            }
            Type::Dyn | Type::Error => Some(Type::Dyn),
            other => {
                self.report(id, format!("type '{other}' does not support field selection"));
                Some(Type::Error)
            }
        };
        found.unwrap_or_else(|| {
            self.report(id, format!("undefined field '{field}'"));
            Type::Error
        })
    }

    // ---- literals ----

    /// The type of an element, taken out of its optional where it is written with `?`.
    fn element(&mut self, value: &Expr, optional: bool) -> Type {
        let ty = self.check(value);
        if !optional {
            return ty;
        }
        match self.resolved(&ty) {
            Type::Optional(inner) => Type::clone(&inner),
            other if other.is_dyn_or_error() => other,
            other => {
                self.mismatch(value.id, &Type::optional(other.clone()), &other);
                other
            }
        }
    }

    /// The type of a collection that holds both; `dyn` where they have nothing in common.
    fn join(&mut self, before: Option<Type>, ty: Type) -> Type {
        match before {
            None => ty,
            Some(before) if self.substitutions.assign(&before, &ty) => {
                if is_as_general(&before, &ty) {
                    before
                } else {
                    ty
                }
            }
            Some(_) => Type::Dyn,
        }
    }

    fn map(&mut self, entries: &[Entry]) -> Type {
        let (mut key, mut value) = (None, None);
        for entry in entries {
            let ty = self.check(&entry.key);
            key = Some(self.join(key, ty));
            let ty = self.element(&entry.value, entry.optional);
            value = Some(self.join(value, ty));
        }
        let mut or_fresh = |ty: Option<Type>| ty.unwrap_or_else(|| self.substitutions.fresh());
        Type::map(or_fresh(key), or_fresh(value))
    }

    fn message(&mut self, expr: &Expr, message: &Message) -> Type {
        let name = message.type_name.trim_start_matches('.');
        let Some(declared) = self.scope.message(name) else {
            if let Some(other) = Type::from_name(name) {
                self.report(expr.id, format!("'{}' is not a message type", other.runtime_name()));
                return Type::Error;
            }
            if let Some(index) = self.scope.variable(name) {
                let ty = self.scope.variables[index].declared.clone();
                self.report(expr.id, format!("'{}' is not a type", ty.runtime_name()));
                return Type::Error;
            }
            return self.undeclared(expr.id, name);
        };
        for init in &message.fields {
            let found = self.element(&init.value, init.optional);
            let wanted = match &declared.fields {
                None => Some(Type::Dyn),
                Some(fields) => fields.iter().find(|(name, _)| *name == init.name).map(|(_, ty)| ty.clone()),
            };
            match wanted {
                None => self.report(init.id, format!("undefined field '{}'", init.name)),
                Some(wanted) if !self.substitutions.assign(&wanted, &found) => {
                    let found = self.resolved(&found);
                    let name = &init.name;
                    let text = format!(
                        "expected type of field '{name}' is '{wanted}' but provided type is '{found}'"
                    );
                    self.report(init.id, text);
                }
                Some(_) => {}
            }
        }
        let ty = Type::Message(declared);
        self.set_reference(expr.id, Reference::Message(ty.clone()));
        ty
    }
}

fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}
