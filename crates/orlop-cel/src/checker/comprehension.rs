//! Types of comprehensions and their iteration variables.

use super::{Checker, Local, Reference};
use crate::ast::{Bind, Comprehension, ComprehensionKind, Expr, OptMap};
use crate::types::Type;

impl Checker<'_> {
    pub(super) fn comprehension(&mut self, expr: &Expr, comprehension: &Comprehension) -> Type {
        let range = self.check(&comprehension.range);
        let range = self.resolved(&range);
        let (first, second) = self.iteration(&comprehension.range, &range, comprehension.var2.is_some());
        let outer = self.locals.len();
        let slot = self.enter(&comprehension.var, first.clone());
        let slot2 = match (&comprehension.var2, second) {
            (Some(var2), Some(second)) => self.enter(var2, second),
            _ => slot,
        };
        self.set_reference(expr.id, Reference::Slots(slot, slot2));
        if let Some(filter) = &comprehension.filter {
            self.predicate(filter);
        }
        let result = match comprehension.kind {
            ComprehensionKind::All | ComprehensionKind::Exists | ComprehensionKind::ExistsOne => {
                self.predicate(&comprehension.body);
                Type::Bool
            }
            ComprehensionKind::Filter => {
                self.predicate(&comprehension.body);
                Type::list(first)
            }
            ComprehensionKind::Map => Type::list(self.check(&comprehension.body)),
            ComprehensionKind::TransformMap => Type::map(first, self.check(&comprehension.body)),
            ComprehensionKind::TransformMapEntry => {
                let body = self.check(&comprehension.body);
                let wanted = Type::map(self.substitutions.fresh(), self.substitutions.fresh());
                if !self.substitutions.assign(&wanted, &body) {
                    self.mismatch(comprehension.body.id, &wanted, &body);
                }
                if self.resolved(&body).is_dyn_or_error() { wanted } else { body }
            }
            ComprehensionKind::SortBy => {
                let key = self.check(&comprehension.body);
                self.sort_key(expr, &range, &key);
                if matches!(range, Type::List(_)) { range } else { Type::list(first) }
            }
        };
        self.locals.truncate(outer);
        self.resolved(&result)
    }

    /// The types of the variables that run over `range`.
    fn iteration(&mut self, expr: &Expr, range: &Type, two: bool) -> (Type, Option<Type>) {
        match range {
            Type::List(item) if two => (Type::Int, Some(Type::clone(item))),
            Type::List(item) => (Type::clone(item), None),
            Type::Map(key, value) => (Type::clone(key), two.then(|| Type::clone(value))),
            Type::Dyn | Type::Error | Type::Param(_) => {
                self.substitutions.assign(&Type::Dyn, range);
                (Type::Dyn, two.then_some(Type::Dyn))
            }
            other => {
                let text = "cannot be range of a comprehension (must be list, map, or dynamic)";
                self.report(expr.id, format!("expression of type '{other}' {text}"));
                (Type::Error, two.then_some(Type::Error))
            }
        }
    }

    fn predicate(&mut self, expr: &Expr) {
        let ty = self.check(expr);
        if !self.substitutions.assign(&Type::Bool, &ty) {
            self.mismatch(expr.id, &Type::Bool, &ty);
        }
    }

    fn sort_key(&mut self, expr: &Expr, range: &Type, key: &Type) {
        let key = self.resolved(key);
        let comparable = matches!(
            key,
            Type::Dyn
                | Type::Error
                | Type::Param(_)
                | Type::Int
                | Type::Uint
                | Type::Double
                | Type::Bool
                | Type::Duration
                | Type::Timestamp
                | Type::String
                | Type::Bytes
        );
        if !comparable || matches!(range, Type::Map(..)) {
            let signature = format!("{range}.(list({key}))");
            self.report(
                expr.id,
                format!("found no matching overload for '@sortByAssociatedKeys' applied to '{signature}'"),
            );
        }
    }

    pub(super) fn bind(&mut self, expr: &Expr, bind: &Bind) -> Type {
        let value = self.check(&bind.value);
        self.with_local(expr, &bind.var, value, &bind.body)
    }

    pub(super) fn opt_map(&mut self, expr: &Expr, opt_map: &OptMap) -> Type {
        let target = self.check(&opt_map.target);
        let inner = self.substitutions.fresh();
        let wanted = Type::optional(inner.clone());
        if !self.substitutions.assign(&target, &wanted) {
            let target = self.resolved(&target);
            let text = format!("found no matching overload for 'hasValue' applied to '{target}.()'");
            self.report(expr.id, text);
        }
        let inner = self.resolved(&inner);
        let body = self.with_local(expr, &opt_map.var, inner, &opt_map.body);
        if !opt_map.flat {
            return Type::optional(body);
        }
        let wanted = Type::optional(self.substitutions.fresh());
        if !self.substitutions.assign(&body, &wanted) {
            let found = self.resolved(&body);
            let text = format!(
                "found no matching overload for '_?_:_' applied to '(bool, {found}, optional_type(dyn))'"
            );
            self.report(expr.id, text);
        }
        self.resolved(&wanted)
    }

    fn with_local(&mut self, expr: &Expr, name: &str, ty: Type, body: &Expr) -> Type {
        let outer = self.locals.len();
        let slot = self.enter(name, ty);
        self.set_reference(expr.id, Reference::Slots(slot, slot));
        let result = self.check(body);
        self.locals.truncate(outer);
        result
    }

    fn enter(&mut self, name: &str, ty: Type) -> usize {
        let slot = self.slots;
        self.slots += 1;
        self.locals.push(Local { name: name.to_owned(), ty, slot });
        slot
    }
}
