//! The unparser: formats an AST as text that parses to the same AST.
//!
//! Parentheses are added only where precedence requires them; macros are written unexpanded.

use crate::ast::{Call, Comprehension, ComprehensionKind, Expr, ExprKind, Literal, SelectMode, operator};
use crate::number::double_to_string;

/// Unparses an expression.
pub(crate) fn unparse(expr: &Expr) -> String {
    let mut printer = Printer { out: String::new() };
    printer.expr(expr);
    printer.out
}

/// Operator precedence, from the ternary to primary expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Ternary,
    Or,
    And,
    Relation,
    Sum,
    Product,
    Unary,
    Member,
}

struct Printer {
    out: String,
}

fn binary(function: &str) -> Option<(&'static str, Level)> {
    Some(match function {
        operator::LESS => ("<", Level::Relation),
        operator::LESS_EQUALS => ("<=", Level::Relation),
        operator::GREATER => (">", Level::Relation),
        operator::GREATER_EQUALS => (">=", Level::Relation),
        operator::EQUALS => ("==", Level::Relation),
        operator::NOT_EQUALS => ("!=", Level::Relation),
        operator::IN => ("in", Level::Relation),
        operator::ADD => ("+", Level::Sum),
        operator::SUBTRACT => ("-", Level::Sum),
        operator::MULTIPLY => ("*", Level::Product),
        operator::DIVIDE => ("/", Level::Product),
        operator::MODULO => ("%", Level::Product),
        _ => return None,
    })
}

fn level(expr: &Expr) -> Level {
    match &expr.kind {
        ExprKind::Literal(Literal::Int(value)) if *value < 0 => Level::Unary,
        ExprKind::Literal(Literal::Double(value)) if value.is_sign_negative() => Level::Unary,
        ExprKind::Call(call) => match call.function.as_str() {
            operator::CONDITIONAL => Level::Ternary,
            operator::OR => Level::Or,
            operator::AND => Level::And,
            operator::NOT | operator::NEGATE => Level::Unary,
            function => binary(function).map_or(Level::Member, |(_, level)| level),
        },
        _ => Level::Member,
    }
}

impl Printer {
    fn text(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn expr(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Literal(literal) => self.literal(literal),
            ExprKind::Ident(name) => self.text(name),
            ExprKind::Select(select) => {
                if select.mode == SelectMode::Presence {
                    self.text("has(");
                }
                self.at(Level::Member, &select.operand);
                self.text(if select.mode == SelectMode::Optional { ".?" } else { "." });
                self.text(&select.field);
                if select.mode == SelectMode::Presence {
                    self.text(")");
                }
            }
            ExprKind::Call(call) => self.call(call),
            ExprKind::List(elements) => {
                self.text("[");
                self.separated(elements, |printer, element| {
                    printer.text(if element.optional { "?" } else { "" });
                    printer.expr(&element.value);
                });
                self.text("]");
            }
            ExprKind::Map(entries) => {
                self.text("{");
                self.separated(entries, |printer, entry| {
                    printer.text(if entry.optional { "?" } else { "" });
                    printer.expr(&entry.key);
                    printer.text(": ");
                    printer.expr(&entry.value);
                });
                self.text("}");
            }
            ExprKind::Message(message) => {
                self.text(&message.type_name);
                self.text("{");
                self.separated(&message.fields, |printer, init| {
                    printer.text(if init.optional { "?" } else { "" });
                    printer.text(&init.name);
                    printer.text(": ");
                    printer.expr(&init.value);
                });
                self.text("}");
            }
            ExprKind::Comprehension(comprehension) => self.comprehension(comprehension),
            ExprKind::Bind(bind) => {
                self.text(&format!("cel.bind({}, ", bind.var));
                self.expr(&bind.value);
                self.text(", ");
                self.expr(&bind.body);
                self.text(")");
            }
            ExprKind::OptMap(opt_map) => {
                self.at(Level::Member, &opt_map.target);
                let name = if opt_map.flat { "optFlatMap" } else { "optMap" };
                self.text(&format!(".{name}({}, ", opt_map.var));
                self.expr(&opt_map.body);
                self.text(")");
            }
        }
    }

    /// Writes an operand, parenthesized if it binds less tightly than `level`.
    fn at(&mut self, least: Level, expr: &Expr) {
        if level(expr) < least {
            self.text("(");
            self.expr(expr);
            self.text(")");
        } else {
            self.expr(expr);
        }
    }

    fn separated<T>(&mut self, items: &[T], mut print: impl FnMut(&mut Self, &T)) {
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.text(", ");
            }
            print(self, item);
        }
    }

    fn call(&mut self, call: &Call) {
        match (call.function.as_str(), call.args.as_slice()) {
            (operator::CONDITIONAL, [condition, yes, no]) => {
                self.at(Level::Or, condition);
                self.text(" ? ");
                self.at(Level::Or, yes);
                self.text(" : ");
                self.expr(no);
            }
            (operator::OR | operator::AND, terms) => {
                let (symbol, least) = if call.function == operator::OR {
                    (" || ", Level::And)
                } else {
                    (" && ", Level::Relation)
                };
                for (index, term) in terms.iter().enumerate() {
                    self.text(if index > 0 { symbol } else { "" });
                    self.at(least, term);
                }
            }
            (operator::NOT, [operand]) => {
                self.text("!");
                self.operand_of_unary(operand);
            }
            (operator::NEGATE, [operand]) => {
                self.text("-");
                self.operand_of_unary(operand);
            }
            (operator::INDEX | operator::OPT_INDEX, [operand, index]) => {
                self.at(Level::Member, operand);
                self.text(if call.function == operator::OPT_INDEX { "[?" } else { "[" });
                self.expr(index);
                self.text("]");
            }
            (function, [left, right]) if binary(function).is_some() => {
                let Some((symbol, own)) = binary(function) else { return };
                self.at(own, left);
                self.text(&format!(" {symbol} "));
                // Operators of one level group to the left.
                let right_level = match own {
                    Level::Relation => Level::Sum,
                    Level::Sum => Level::Product,
                    _ => Level::Unary,
                };
                self.at(right_level, right);
            }
            (function, args) => {
                let (function, target) = match function {
                    "math.@min" => ("math.least", &None),
                    "math.@max" => ("math.greatest", &None),
                    function => (function, &call.target),
                };
                if let Some(target) = target {
                    self.at(Level::Member, target);
                    self.text(".");
                }
                self.text(function);
                self.text("(");
                self.separated(args, Self::expr);
                self.text(")");
            }
        }
    }

    /// A sign before a number would be read as part of it, even where the number only begins the operand.
    fn operand_of_unary(&mut self, operand: &Expr) {
        let start = self.out.len();
        self.at(Level::Member, operand);
        if self.out[start..].starts_with(|c: char| c.is_ascii_digit()) {
            self.out.insert(start, '(');
            self.text(")");
        }
    }

    fn comprehension(&mut self, comprehension: &Comprehension) {
        self.at(Level::Member, &comprehension.range);
        self.text(match (comprehension.kind, &comprehension.var2) {
            (ComprehensionKind::All, _) => ".all(",
            (ComprehensionKind::Exists, _) => ".exists(",
            (ComprehensionKind::ExistsOne, _) => ".exists_one(",
            (ComprehensionKind::Map, None) => ".map(",
            (ComprehensionKind::Map, Some(_)) => ".transformList(",
            (ComprehensionKind::Filter, _) => ".filter(",
            (ComprehensionKind::TransformMap, _) => ".transformMap(",
            (ComprehensionKind::TransformMapEntry, _) => ".transformMapEntry(",
            (ComprehensionKind::SortBy, _) => ".sortBy(",
        });
        self.text(&comprehension.var);
        if let Some(name) = &comprehension.var2 {
            self.text(", ");
            self.text(name);
        }
        for argument in comprehension.filter.iter().chain([&comprehension.body]) {
            self.text(", ");
            self.expr(argument);
        }
        self.text(")");
    }

    fn literal(&mut self, literal: &Literal) {
        match literal {
            Literal::Null => self.text("null"),
            Literal::Bool(value) => self.text(if *value { "true" } else { "false" }),
            Literal::Int(value) => self.text(&value.to_string()),
            Literal::Uint(value) => self.text(&format!("{value}u")),
            Literal::Double(value) => {
                let text = double_to_string(*value);
                self.text(&text);
                if !text.contains(['.', 'e']) {
                    self.text(".0");
                }
            }
            Literal::String(text) => {
                self.text("\"");
                text.chars().for_each(|c| self.character(c));
                self.text("\"");
            }
            Literal::Bytes(bytes) => {
                self.text("b\"");
                bytes.iter().for_each(|byte| self.text(&format!("\\x{byte:02x}")));
                self.text("\"");
            }
        }
    }

    fn character(&mut self, c: char) {
        match c {
            '\n' => self.text("\\n"),
            '\r' => self.text("\\r"),
            '\t' => self.text("\\t"),
            '\\' => self.text("\\\\"),
            '"' => self.text("\\\""),
            c if c.is_control() => self.text(&format!("\\u{:04x}", c as u32)),
            c => self.out.push(c),
        }
    }
}
