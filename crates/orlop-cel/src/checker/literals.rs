//! Static validation of literals.
//!
//! Elements of a list literal should be of one type, keys and values of a map literal too, except inside arguments of
//! `format`. Durations, timestamps, regular expressions and format strings written as literals must be valid.

use super::Checked;
use crate::ast::{Call, Expr, ExprKind, Literal};
use crate::error::CompileErrors;
use crate::library::{format, regex};
use crate::time::{parse_duration, parse_rfc3339};
use crate::types::Type;

/// Returns the errors in the literals of a checked expression.
pub(super) fn validate(checked: &Checked) -> CompileErrors {
    let errors = CompileErrors::new(checked.source.clone());
    let mut validator = Validator { checked, errors, in_format: 0 };
    validator.walk(&checked.ast.root);
    validator.errors
}

struct Validator<'c> {
    checked: &'c Checked,
    errors: CompileErrors,
    /// Nesting depth of `format` calls.
    in_format: usize,
}

impl Validator<'_> {
    fn walk(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Literal(_) | ExprKind::Ident(_) => {}
            ExprKind::Select(select) => self.walk(&select.operand),
            ExprKind::Call(call) => self.call(expr, call),
            ExprKind::List(elements) => {
                self.same_types(elements.iter().map(|element| (&element.value, element.optional)));
                elements.iter().for_each(|element| self.walk(&element.value));
            }
            ExprKind::Map(entries) => {
                self.same_types(entries.iter().map(|entry| (&entry.key, false)));
                self.same_types(entries.iter().map(|entry| (&entry.value, entry.optional)));
                for entry in entries {
                    self.walk(&entry.key);
                    self.walk(&entry.value);
                }
            }
            ExprKind::Message(message) => message.fields.iter().for_each(|init| self.walk(&init.value)),
            ExprKind::Comprehension(comprehension) => {
                self.walk(&comprehension.range);
                comprehension.filter.iter().for_each(|filter| self.walk(filter));
                self.walk(&comprehension.body);
            }
            ExprKind::Bind(bind) => {
                self.walk(&bind.value);
                self.walk(&bind.body);
            }
            ExprKind::OptMap(opt_map) => {
                self.walk(&opt_map.target);
                self.walk(&opt_map.body);
            }
        }
    }

    fn report(&mut self, expr: &Expr, message: impl Into<String>) {
        self.errors.report(self.checked.ast.position(expr.id), message);
    }

    fn same_types<'x>(&mut self, elements: impl Iterator<Item = (&'x Expr, bool)>) {
        if self.in_format > 0 {
            return;
        }
        let mut first: Option<Type> = None;
        for (element, optional) in elements {
            let ty = match (self.checked.type_of(element), optional) {
                (Type::Optional(inner), true) => Type::clone(inner),
                (other, _) => other.clone(),
            };
            match &first {
                None => first = Some(ty),
                Some(first) if *first == ty => {}
                Some(first) => {
                    let text = format!("expected type '{first}' but found '{ty}'");
                    self.report(element, text);
                    return;
                }
            }
        }
    }

    fn call(&mut self, expr: &Expr, call: &Call) {
        if let [argument] = call.args.as_slice()
            && let Some(text) = string_literal(argument)
        {
            let valid = match (call.function.as_str(), &call.target) {
                ("duration", None) => parse_duration(text).is_some(),
                ("timestamp", None) => parse_rfc3339(text).is_some(),
                ("matches", Some(_)) => regex::compile(text).is_ok(),
                _ => true,
            };
            if !valid {
                self.report(argument, format!("invalid {} argument", call.function));
                return;
            }
        }
        let is_format = call.function == "format" && call.target.is_some();
        if is_format {
            self.format(expr, call);
            self.in_format += 1;
        }
        call.target.iter().for_each(|target| self.walk(target));
        call.args.iter().for_each(|arg| self.walk(arg));
        if is_format {
            self.in_format -= 1;
        }
    }

    fn format(&mut self, expr: &Expr, call: &Call) {
        let Some(text) = call.target.as_deref().and_then(string_literal) else { return };
        let [Expr { kind: ExprKind::List(elements), .. }] = call.args.as_slice() else { return };
        if elements.iter().any(|element| element.optional) {
            return;
        }
        let types: Vec<&Type> = elements.iter().map(|element| self.checked.type_of(&element.value)).collect();
        if let Err((index, message)) = format::check_types(text, &types) {
            let place = index.and_then(|index| elements.get(index)).map_or(expr, |element| &element.value);
            self.report(place, message);
        }
    }
}

fn string_literal(expr: &Expr) -> Option<&str> {
    match &expr.kind {
        ExprKind::Literal(Literal::String(text)) => Some(text),
        _ => None,
    }
}
