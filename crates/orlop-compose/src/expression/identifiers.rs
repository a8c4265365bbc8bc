//! The names that an expression refers to.

use std::collections::BTreeSet;

use orlop_cel::ast::{Ast, Expr, ExprKind};

/// Prefixes of functions, which look like variables in the tree.
const FUNCTION_NAMESPACES: &[&str] = &[
    "base64", "cel", "cidr", "format", "hash", "ip", "json", "lists", "math", "optional", "random",
    "runtime", "sets", "strings",
];

/// Types, which look like variables in the tree.
const TYPE_NAMES: &[&str] = &[
    "bool",
    "bytes",
    "double",
    "dyn",
    "int",
    "list",
    "map",
    "null_type",
    "optional_type",
    "string",
    "type",
    "uint",
    "google",
    "net",
];

/// The free names of an expression.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identifiers {
    /// Variables, without those that macros introduce.
    pub(crate) variables: BTreeSet<String>,
    /// True if `omit()` is called.
    pub(crate) omit: bool,
    /// True if `runtime` is used.
    pub(crate) runtime: bool,
}

impl Identifiers {
    pub(crate) fn of(ast: &Ast) -> Self {
        let mut found = Self::default();
        found.walk(&ast.root, &mut Vec::new());
        found
    }

    fn name(&mut self, name: &str, locals: &[String]) {
        let name = name.trim_start_matches('.');
        if !locals.iter().any(|local| local == name) && !TYPE_NAMES.contains(&name) {
            self.variables.insert(name.to_owned());
        }
    }

    fn walk(&mut self, expr: &Expr, locals: &mut Vec<String>) {
        match &expr.kind {
            ExprKind::Literal(_) => {}
            ExprKind::Ident(name) => self.name(name, locals),
            ExprKind::Select(select) => self.walk(&select.operand, locals),
            ExprKind::Call(call) => {
                if call.target.is_none() && call.function == "omit" {
                    self.omit = true;
                }
                match call.target.as_deref() {
                    Some(Expr { kind: ExprKind::Ident(name), .. })
                        if FUNCTION_NAMESPACES.contains(&name.as_str())
                            && !locals.iter().any(|local| local == name) =>
                    {
                        self.runtime |= name == "runtime";
                    }
                    Some(target) => self.walk(target, locals),
                    None => {}
                }
                for arg in &call.args {
                    self.walk(arg, locals);
                }
            }
            ExprKind::List(elements) => {
                for element in elements {
                    self.walk(&element.value, locals);
                }
            }
            ExprKind::Map(entries) => {
                for entry in entries {
                    self.walk(&entry.key, locals);
                    self.walk(&entry.value, locals);
                }
            }
            ExprKind::Message(message) => {
                for field in &message.fields {
                    self.walk(&field.value, locals);
                }
            }
            ExprKind::Comprehension(comprehension) => {
                self.walk(&comprehension.range, locals);
                let outer = locals.len();
                locals.push(comprehension.var.clone());
                locals.extend(comprehension.var2.clone());
                if let Some(filter) = &comprehension.filter {
                    self.walk(filter, locals);
                }
                self.walk(&comprehension.body, locals);
                locals.truncate(outer);
            }
            ExprKind::Bind(bind) => {
                self.walk(&bind.value, locals);
                locals.push(bind.var.clone());
                self.walk(&bind.body, locals);
                locals.pop();
            }
            ExprKind::OptMap(opt_map) => {
                self.walk(&opt_map.target, locals);
                locals.push(opt_map.var.clone());
                self.walk(&opt_map.body, locals);
                locals.pop();
            }
        }
    }
}
