//! Fields that a condition reads, so that a false one can show their values.

use orlop_cel::ast::{Ast, Expr, ExprKind, Literal, SelectMode, operator};
use serde_json::Value as Json;

use super::Scope;

/// Fields shown, at most.
const SHOWN_MAX: usize = 4;
/// Characters of a value shown, at most.
const VALUE_MAX: usize = 80;

/// A step from a value to one inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Field(String),
    Item(usize),
}

/// The paths that an expression reads: `gate.status.phase`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reads {
    paths: Vec<(String, Vec<Step>)>,
}

impl Reads {
    pub(crate) fn of(ast: &Ast) -> Self {
        let mut found = Self::default();
        found.walk(&ast.root);
        found
    }

    /// Says what the paths hold: `gate.data.open is "no"`. Paths of loop variables are not bound and left out.
    pub(crate) fn values(&self, scope: &Scope<'_>) -> String {
        let shown = self.paths.iter().filter_map(|(name, steps)| {
            let root = scope.get(name)?;
            let mut text = name.clone();
            let mut value = Some(root);
            for step in steps {
                match step {
                    Step::Field(field) => {
                        text.push('.');
                        text.push_str(field);
                        value = value.and_then(|value| value.get(field));
                    }
                    Step::Item(index) => {
                        text.push_str(&format!("[{index}]"));
                        value = value.and_then(|value| value.get(index));
                    }
                }
            }
            Some(match value {
                None => format!("{text} is absent"),
                Some(value) => format!("{text} is {}", shorten(value)),
            })
        });
        shown.take(SHOWN_MAX).collect::<Vec<_>>().join(", ")
    }

    fn add(&mut self, path: (String, Vec<Step>)) {
        if !self.paths.contains(&path) {
            self.paths.push(path);
        }
    }

    fn walk(&mut self, expr: &Expr) {
        if let Some(path) = path_of(expr).filter(|(_, steps)| !steps.is_empty()) {
            self.add(path);
            return;
        }
        match &expr.kind {
            ExprKind::Select(select) => self.walk(&select.operand),
            ExprKind::Call(call) => {
                call.target.iter().for_each(|target| self.walk(target));
                call.args.iter().for_each(|arg| self.walk(arg));
            }
            ExprKind::List(elements) => elements.iter().for_each(|element| self.walk(&element.value)),
            ExprKind::Comprehension(comprehension) => {
                self.walk(&comprehension.range);
                self.walk(&comprehension.body);
            }
            ExprKind::Bind(bind) => {
                self.walk(&bind.value);
                self.walk(&bind.body);
            }
            _ => {}
        }
    }
}

/// The path of a chain of fields and constant indices.
fn path_of(expr: &Expr) -> Option<(String, Vec<Step>)> {
    match &expr.kind {
        ExprKind::Ident(name) => Some((name.clone(), Vec::new())),
        ExprKind::Select(select) if matches!(select.mode, SelectMode::Value | SelectMode::Optional) => {
            let (root, mut steps) = path_of(&select.operand)?;
            steps.push(Step::Field(select.field.clone()));
            Some((root, steps))
        }
        ExprKind::Call(call) if [operator::INDEX, operator::OPT_INDEX].contains(&call.function.as_str()) => {
            let mut args = call.target.as_deref().into_iter().chain(&call.args);
            let (root, mut steps) = path_of(args.next()?)?;
            steps.push(match &args.next()?.kind {
                ExprKind::Literal(Literal::String(field)) => Step::Field(field.to_string()),
                ExprKind::Literal(Literal::Int(index)) => Step::Item(usize::try_from(*index).ok()?),
                _ => return None,
            });
            Some((root, steps))
        }
        _ => None,
    }
}

fn shorten(value: &Json) -> String {
    let text = value.to_string();
    match text.char_indices().nth(VALUE_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::expression::environment;

    #[test]
    fn values_of_the_fields_that_a_condition_reads() {
        let text = "gate.data['open'] == 'yes' && gate.status.?phase.orValue('') == 'Up' && gate.list[0].n > 1 && \
                    gate.list.all(x, x.n > 0)";
        let reads = Reads::of(&environment().parse(text).unwrap());
        let gate = json!({"data": {"open": "no"}, "list": [{"n": 1}]});
        let mut scope = Scope::default();
        scope.bind("gate", &gate);
        assert_eq!(
            reads.values(&scope),
            "gate.data.open is \"no\", gate.status.phase is absent, gate.list[0].n is 1, gate.list is [{\"n\":1}]"
        );
    }
}
