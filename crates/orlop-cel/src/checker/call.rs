//! Overload resolution of calls.
//!
//! `a.b.c(x)` is the function `a.b.c` if there is one, else the function `c` on the target `a.b`. Arguments of type
//! `dyn` can fit several overloads; all of them are kept for run time, and the result is `dyn` unless they agree.

use super::unify::{instantiate, parameter_names};
use super::{Checker, Reference};
use crate::ast::{Call, Expr, ExprId, operator};
use crate::functions::{Function, Overload};
use crate::parser::qualified_name;
use crate::types::Type;
use std::sync::Arc;

impl Checker<'_> {
    pub(super) fn call(&mut self, expr: &Expr, call: &Call) -> Type {
        if matches!(call.function.as_str(), operator::AND | operator::OR) {
            return self.logical(expr, call);
        }
        let arguments: Vec<Type> = call.args.iter().map(|arg| self.check(arg)).collect();
        let Some(target) = &call.target else {
            let name = call.function.trim_start_matches('.');
            return match self.scope.functions.get(name).cloned() {
                Some(function) => self.overload(expr.id, &function, false, arguments, false),
                None => self.undeclared(expr.id, &call.function),
            };
        };
        if let Some(prefix) = qualified_name(target).filter(|prefix| !self.starts_locally(prefix)) {
            let name = format!("{}.{}", prefix.trim_start_matches('.'), call.function);
            if let Some(function) = self.scope.functions.get(&name).cloned() {
                return self.overload(expr.id, &function, false, arguments, true);
            }
        }
        let mut types = vec![self.check(target)];
        types.extend(arguments);
        match self.scope.functions.get(&call.function).cloned() {
            Some(function) => self.overload(expr.id, &function, true, types, false),
            None => self.undeclared(expr.id, &call.function),
        }
    }

    fn logical(&mut self, expr: &Expr, call: &Call) -> Type {
        let mut result = Type::Bool;
        for arg in &call.args {
            let ty = self.check(arg);
            if !self.substitutions.assign(&ty, &Type::Bool) {
                self.mismatch(arg.id, &Type::Bool, &ty);
                result = Type::Error;
            }
        }
        if let Some(function) = self.scope.functions.get(&call.function).cloned() {
            self.set_reference(
                expr.id,
                Reference::Call { function, overloads: vec![0], static_target: false },
            );
        }
        result
    }

    fn overload(
        &mut self,
        id: ExprId,
        function: &Arc<Function>,
        member: bool,
        arguments: Vec<Type>,
        static_target: bool,
    ) -> Type {
        let mut overloads = Vec::new();
        let mut result: Option<Type> = None;
        for (index, overload) in function.overloads.iter().enumerate() {
            if overload.member != member || overload.params.len() != arguments.len() {
                continue;
            }
            let (params, returns) = self.instance(overload);
            if !self.substitutions.assign_all(&arguments, &params) {
                continue;
            }
            overloads.push(index);
            let returns = self.resolved(&returns);
            result = Some(match result {
                None => returns,
                Some(before) if before == Type::Dyn || before == returns => before,
                Some(_) => Type::Dyn,
            });
        }
        match result {
            Some(result) => {
                self.set_reference(
                    id,
                    Reference::Call { function: function.clone(), overloads, static_target },
                );
                result
            }
            None => {
                let arguments: Vec<Type> =
                    arguments.iter().map(|ty| self.substitutions.apply(ty, true)).collect();
                let signature = signature(&arguments, member);
                let name = &function.name;
                self.report(id, format!("found no matching overload for '{name}' applied to '{signature}'"));
                Type::Error
            }
        }
    }

    /// The overload's types with fresh variables for its parameters.
    fn instance(&mut self, overload: &Overload) -> (Vec<Type>, Type) {
        let mut names = Vec::new();
        for ty in overload.params.iter().chain([&overload.result]) {
            parameter_names(ty, &mut names);
        }
        if names.is_empty() {
            return (overload.params.clone(), overload.result.clone());
        }
        let names: Vec<_> = names.into_iter().map(|name| (name, self.substitutions.fresh())).collect();
        let params = overload.params.iter().map(|ty| instantiate(ty, &names)).collect();
        (params, instantiate(&overload.result, &names))
    }
}

/// `(int, string)` or `string.(int)`.
fn signature(arguments: &[Type], member: bool) -> String {
    let texts: Vec<String> = arguments.iter().map(Type::to_string).collect();
    match texts.split_first() {
        Some((target, rest)) if member => format!("{target}.({})", rest.join(", ")),
        _ => format!("({})", texts.join(", ")),
    }
}
