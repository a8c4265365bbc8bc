//! Macro expansion in the parser.
//!
//! The libraries of the environment enable [`Macros`]. A call whose name and argument count match a macro is expanded;
//! invalid macro arguments are errors; any other call stays a call.

use super::Parser;
use crate::ast::{
    Bind, Call, Comprehension, ComprehensionKind, Element, Expr, ExprKind, Literal, OptMap, Select,
    SelectMode,
};

/// The macros and pieces of syntax beyond the language's core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Macros {
    /// `a.?b`, `[?x]`, `optMap`, `optFlatMap`.
    pub(crate) optionals: bool,
    /// `cel.bind`.
    pub(crate) bindings: bool,
    /// `all(i, x, …)`, `transformList`, `transformMap`, `transformMapEntry`.
    pub(crate) two_variables: bool,
    /// `sortBy`.
    pub(crate) sort_by: bool,
    /// `math.least`, `math.greatest`.
    pub(crate) math: bool,
}

/// Names that hold accumulators in other implementations; taking one there would shadow it.
const ACCUMULATORS: [&str; 2] = ["__result__", "@result"];

impl Parser<'_> {
    pub(crate) fn global_call(&mut self, at: u32, function: String, mut args: Vec<Expr>) -> Expr {
        if function != "has" || args.len() != 1 {
            return self.node(at, ExprKind::Call(Box::new(Call { target: None, function, args })));
        }
        match args.pop() {
            Some(Expr { kind: ExprKind::Select(select), .. }) if select.mode == SelectMode::Value => {
                let Select { operand, field, .. } = *select;
                let select = Select { operand, field, mode: SelectMode::Presence };
                self.node(at, ExprKind::Select(Box::new(select)))
            }
            other => {
                let place = other.map_or(at, |arg| self.position(&arg));
                self.report_error(place, "invalid argument to has() macro")
            }
        }
    }

    pub(crate) fn member_call(&mut self, at: u32, target: Expr, function: String, args: Vec<Expr>) -> Expr {
        let macros = self.macros;
        match (function.as_str(), args.len()) {
            ("all", 2) => self.comprehension(at, ComprehensionKind::All, target, args, false),
            ("exists", 2) => self.comprehension(at, ComprehensionKind::Exists, target, args, false),
            ("exists_one" | "existsOne", 2) => {
                self.comprehension(at, ComprehensionKind::ExistsOne, target, args, false)
            }
            ("map", 2 | 3) => self.comprehension(at, ComprehensionKind::Map, target, args, false),
            ("filter", 2) => self.comprehension(at, ComprehensionKind::Filter, target, args, false),
            ("sortBy", 2) if macros.sort_by => {
                self.comprehension(at, ComprehensionKind::SortBy, target, args, false)
            }
            ("all", 3) if macros.two_variables => {
                self.comprehension(at, ComprehensionKind::All, target, args, true)
            }
            ("exists", 3) if macros.two_variables => {
                self.comprehension(at, ComprehensionKind::Exists, target, args, true)
            }
            ("exists_one" | "existsOne", 3) if macros.two_variables => {
                self.comprehension(at, ComprehensionKind::ExistsOne, target, args, true)
            }
            ("transformList", 3 | 4) if macros.two_variables => {
                self.comprehension(at, ComprehensionKind::Map, target, args, true)
            }
            ("transformMap", 3 | 4) if macros.two_variables => {
                self.comprehension(at, ComprehensionKind::TransformMap, target, args, true)
            }
            ("transformMapEntry", 3 | 4) if macros.two_variables => {
                self.comprehension(at, ComprehensionKind::TransformMapEntry, target, args, true)
            }
            ("optMap" | "optFlatMap", 2) if macros.optionals => self.opt_map(at, target, &function, args),
            ("bind", 3) if macros.bindings && is_ident(&target, "cel") => self.bind(at, args),
            ("least" | "greatest", _) if macros.math && is_ident(&target, "math") => {
                self.extremum(at, &target, &function, args)
            }
            _ => self
                .node(at, ExprKind::Call(Box::new(Call { target: Some(Box::new(target)), function, args }))),
        }
    }

    fn comprehension(
        &mut self,
        at: u32,
        kind: ComprehensionKind,
        range: Expr,
        args: Vec<Expr>,
        two: bool,
    ) -> Expr {
        let needs = match kind {
            ComprehensionKind::All | ComprehensionKind::Exists | ComprehensionKind::ExistsOne => {
                "argument must be a simple name"
            }
            _ => "argument is not an identifier",
        };
        let mut args = args.into_iter();
        let mut names = Vec::new();
        for arg in args.by_ref().take(if two { 2 } else { 1 }) {
            let place = self.position(&arg);
            let name = match arg.kind {
                ExprKind::Ident(name) => name,
                _ => return self.report_error(place, needs),
            };
            if names.contains(&name) {
                return self.report_error(place, format!("duplicate variable name: {name}"));
            }
            if ACCUMULATORS.contains(&name.as_str()) {
                return self.report_error(place, "iteration variable overwrites accumulator variable");
            }
            names.push(name);
        }
        let var2 = if two { names.pop() } else { None };
        let (filter, body) = match (args.next(), args.next()) {
            (Some(filter), Some(body)) => (Some(filter), body),
            (Some(body), None) => (None, body),
            _ => return self.report_error(at, needs),
        };
        let var = names.pop().unwrap_or_default();
        self.node(
            at,
            ExprKind::Comprehension(Box::new(Comprehension { kind, range, var, var2, filter, body })),
        )
    }

    fn opt_map(&mut self, at: u32, target: Expr, function: &str, args: Vec<Expr>) -> Expr {
        let [var, body] = match <[Expr; 2]>::try_from(args) {
            Ok(args) => args,
            Err(_) => return self.report_error(at, "unexpected number of arguments"),
        };
        let place = self.position(&var);
        let ExprKind::Ident(var) = var.kind else {
            return self
                .report_error(place, format!("{function}() variable name must be a simple identifier"));
        };
        let flat = function == "optFlatMap";
        self.node(at, ExprKind::OptMap(Box::new(OptMap { target, var, body, flat })))
    }

    fn bind(&mut self, at: u32, args: Vec<Expr>) -> Expr {
        let [var, value, body] = match <[Expr; 3]>::try_from(args) {
            Ok(args) => args,
            Err(_) => return self.report_error(at, "unexpected number of arguments"),
        };
        let place = self.position(&var);
        let ExprKind::Ident(var) = var.kind else {
            return self.report_error(place, "cel.bind() variable names must be simple identifiers");
        };
        self.node(at, ExprKind::Bind(Box::new(Bind { var, value, body })))
    }

    /// `math.least(a, b, …)` is a call of `math.@min` on one value, two values or a list.
    fn extremum(&mut self, at: u32, target: &Expr, name: &str, args: Vec<Expr>) -> Expr {
        let function = if name == "least" { "math.@min" } else { "math.@max" };
        if args.is_empty() {
            let place = self.position(target);
            return self.report_error(place, format!("math.{name}() requires at least one argument"));
        }
        if let [only] = args.as_slice() {
            if !is_numeric(only) && !is_numeric_list(only) {
                let place = self.position(only);
                return self.report_error(place, format!("math.{name}() invalid single argument value"));
            }
        } else if let Some(bad) = args.iter().find(|arg| !is_numeric(arg)) {
            let place = self.position(bad);
            return self
                .report_error(place, format!("math.{name}() simple literal arguments must be numeric"));
        }
        if args.len() <= 2 {
            return self.call(at, function, args);
        }
        let elements = args.into_iter().map(|value| Element { optional: false, value }).collect();
        let list = self.node(at, ExprKind::List(elements));
        self.call(at, function, vec![list])
    }
}

fn is_ident(expr: &Expr, name: &str) -> bool {
    matches!(&expr.kind, ExprKind::Ident(found) if found == name)
}

fn is_numeric(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Literal(value) => matches!(value, Literal::Int(_) | Literal::Uint(_) | Literal::Double(_)),
        ExprKind::List(_) | ExprKind::Map(_) | ExprKind::Message(_) => false,
        _ => true,
    }
}

fn is_numeric_list(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::List(elements) => !elements.is_empty() && elements.iter().all(|e| is_numeric(&e.value)),
        _ => false,
    }
}
