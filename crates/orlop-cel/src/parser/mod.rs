//! The parser: recursive descent over the whole grammar.
//!
//! A *syntax error* ends parsing: unlike cel-go's generated parser there is no error recovery, so only the first is
//! reported, with the same text. An error inside a well-formed AST (a reserved word, a number out of range, invalid
//! macro arguments) is reported and parsing continues. Depth is bounded by [`DEPTH_MAX`], chains such as `a.b.c` and
//! `1 + 2 + 3` included, so nothing that walks or drops the AST can overflow the stack.

mod macros;

pub(crate) use macros::Macros;

use crate::ast::{
    Ast, Call, Element, Entry, Expr, ExprId, ExprKind, FieldInit, Literal, Message, Select, SelectMode,
    operator,
};
use crate::error::CompileErrors;
use crate::lexer::{Kind, Token, tokens};
use crate::literal;
use crate::source::{EXPRESSION_CHARS_MAX, Source};

/// Limit on the depth of an AST.
pub const DEPTH_MAX: u32 = 250;

/// Reserved words.
pub(crate) const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Tokens that may begin an expression, as error messages list them.
const EXPRESSION_START: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";

/// Parses an expression.
pub(crate) fn parse(source: &Source, macros: Macros) -> Result<Ast, CompileErrors> {
    let mut errors = CompileErrors::new(source.clone());
    let size = source.text().chars().count();
    if size > EXPRESSION_CHARS_MAX {
        errors.report_nowhere(format!(
            "expression code point size exceeds limit: size: {size}, limit {EXPRESSION_CHARS_MAX}"
        ));
        return Err(errors);
    }
    let tokens = tokens(source.text(), &mut errors);
    let mut parser = Parser { tokens, next: 0, depth: 0, deepest: 0, positions: Vec::new(), errors, macros };
    let root = parser.expression().and_then(|root| match parser.peek().kind {
        Kind::End => Ok(root),
        _ => Err(parser.unexpected("<EOF>", |token| token.kind == Kind::End)),
    });
    let Parser { errors, positions, deepest, .. } = parser;
    match root {
        Ok(root) => errors.into_result(Ast { root, positions, depth: deepest }),
        // A syntax error has been reported; the error branch carries the list.
        Err(Stop) => Err(errors.into_result(()).err().unwrap_or_else(|| CompileErrors::new(source.clone()))),
    }
}

/// Parsing cannot go on; the reason has been reported.
pub(crate) struct Stop;

pub(crate) type Parsed<T> = Result<T, Stop>;

pub(crate) struct Parser<'s> {
    tokens: Vec<Token<'s>>,
    next: usize,
    depth: u32,
    /// The greatest depth reached.
    deepest: u32,
    positions: Vec<u32>,
    errors: CompileErrors,
    pub(crate) macros: Macros,
}

// ---- tokens and nodes ----

impl<'s> Parser<'s> {
    fn peek(&self) -> Token<'s> {
        self.peek_at(0)
    }

    fn peek_at(&self, ahead: usize) -> Token<'s> {
        let last = self.tokens.len() - 1;
        self.tokens[(self.next + ahead).min(last)]
    }

    fn advance(&mut self) -> Token<'s> {
        let token = self.peek();
        self.next += 1;
        token
    }

    fn at_symbol(&self, text: &str) -> bool {
        let token = self.peek();
        token.kind == Kind::Symbol && token.text == text
    }

    fn accept(&mut self, text: &str) -> Option<Token<'s>> {
        self.at_symbol(text).then(|| self.advance())
    }

    fn expect(&mut self, text: &str) -> Parsed<Token<'s>> {
        match self.accept(text) {
            Some(token) => Ok(token),
            None => Err(self.unexpected(&format!("'{text}'"), |token| token.text == text)),
        }
    }

    /// Reports the token in hand; `fits` says whether dropping it would help, which the message distinguishes.
    fn unexpected(&mut self, expected: &str, fits: impl Fn(Token<'_>) -> bool) -> Stop {
        let token = self.peek();
        let verb = if token.kind != Kind::End && fits(self.peek_at(1)) { "extraneous" } else { "mismatched" };
        self.errors
            .report(token.at, format!("Syntax error: {verb} input '{}' expecting {expected}", token.text));
        Stop
    }

    /// Reports an error without stopping the parser, and returns a placeholder node.
    pub(crate) fn report_error(&mut self, at: u32, message: impl Into<String>) -> Expr {
        self.errors.report(at, message);
        self.node(at, ExprKind::Literal(Literal::Null))
    }

    pub(crate) fn id(&mut self, at: u32) -> ExprId {
        self.positions.push(at);
        (self.positions.len() - 1) as ExprId
    }

    pub(crate) fn node(&mut self, at: u32, kind: ExprKind) -> Expr {
        Expr { id: self.id(at), kind }
    }

    pub(crate) fn position(&self, expr: &Expr) -> u32 {
        self.positions[expr.id as usize]
    }

    pub(crate) fn call(&mut self, at: u32, function: &str, args: Vec<Expr>) -> Expr {
        self.node(at, ExprKind::Call(Box::new(Call { target: None, function: function.to_owned(), args })))
    }

    fn deepen(&mut self) -> Parsed<()> {
        self.depth += 1;
        self.deepest = self.deepest.max(self.depth);
        if self.depth > DEPTH_MAX {
            self.errors.report_nowhere("max recursion depth exceeded");
            return Err(Stop);
        }
        Ok(())
    }
}

// ---- operators ----
//
// These functions call each other once per level of nesting, so their frames decide how much stack a level takes:
// whatever is rare or only reports is kept in functions beside the recursion.

impl Parser<'_> {
    fn expression(&mut self) -> Parsed<Expr> {
        self.deepen()?;
        let depth = self.depth;
        let mut result = self.binary(0)?;
        if self.at_symbol("?") {
            result = self.ternary(result)?;
        }
        self.depth = depth - 1;
        Ok(result)
    }

    fn ternary(&mut self, condition: Expr) -> Parsed<Expr> {
        let at = self.advance().at;
        let yes = self.binary(0)?;
        self.expect(":")?;
        let no = self.expression()?;
        Ok(self.call(at, operator::CONDITIONAL, vec![condition, yes, no]))
    }

    /// Operators that bind at least as tightly as `level`, grouped to the left.
    fn binary(&mut self, level: u8) -> Parsed<Expr> {
        let depth = self.depth;
        let mut left = self.unary()?;
        // The logical operator whose terms `left` is collecting.
        let mut collecting = "";
        while let Some((function, binds)) = binary_operator(self.peek()).filter(|(_, binds)| *binds >= level)
        {
            let at = self.advance().at;
            let logical = matches!(function, operator::AND | operator::OR);
            if !logical {
                self.deepen()?;
            }
            let right = self.binary(binds + 1)?;
            left = self.combined(at, function, left, right, collecting == function);
            collecting = if logical { function } else { "" };
        }
        self.depth = depth;
        Ok(left)
    }

    /// `a || b || c` and `a && b && c` become one call with all their terms.
    fn combined(&mut self, at: u32, function: &str, mut left: Expr, right: Expr, collecting: bool) -> Expr {
        match &mut left.kind {
            ExprKind::Call(call) if collecting => {
                call.args.push(right);
                left
            }
            _ => self.call(at, function, vec![left, right]),
        }
    }

    fn unary(&mut self) -> Parsed<Expr> {
        let first = self.peek();
        match first.text {
            "!" | "-" if first.kind == Kind::Symbol => self.signed(first),
            _ => self.member(),
        }
    }

    fn signed(&mut self, first: Token<'_>) -> Parsed<Expr> {
        let symbol = if first.text == "!" { "!" } else { "-" };
        let signed_number = |parser: &Self| {
            symbol == "-"
                && parser.at_symbol("-")
                && matches!(parser.peek_at(1).kind, Kind::Int | Kind::Double)
        };
        let mut count = 0;
        while self.at_symbol(symbol) && !signed_number(self) {
            self.advance();
            count += 1;
        }
        let operand = self.member()?;
        if count % 2 == 0 {
            return Ok(operand);
        }
        let function = if symbol == "!" { operator::NOT } else { operator::NEGATE };
        Ok(self.call(first.at, function, vec![operand]))
    }
}

/// The function of an operator, and how tightly it binds.
fn binary_operator(token: Token<'_>) -> Option<(&'static str, u8)> {
    if token.kind != Kind::Symbol {
        return None;
    }
    Some(match token.text {
        "||" => (operator::OR, 0),
        "&&" => (operator::AND, 1),
        "<" => (operator::LESS, 2),
        "<=" => (operator::LESS_EQUALS, 2),
        ">" => (operator::GREATER, 2),
        ">=" => (operator::GREATER_EQUALS, 2),
        "==" => (operator::EQUALS, 2),
        "!=" => (operator::NOT_EQUALS, 2),
        "in" => (operator::IN, 2),
        "+" => (operator::ADD, 3),
        "-" => (operator::SUBTRACT, 3),
        "*" => (operator::MULTIPLY, 4),
        "/" => (operator::DIVIDE, 4),
        "%" => (operator::MODULO, 4),
        _ => return None,
    })
}

// ---- members and primaries ----

impl Parser<'_> {
    fn member(&mut self) -> Parsed<Expr> {
        let depth = self.depth;
        let mut operand = self.primary()?;
        loop {
            let next = self.peek();
            operand = match next.text {
                "." if next.kind == Kind::Symbol => self.selection(operand)?,
                "[" if next.kind == Kind::Symbol => self.index(operand)?,
                "{" if next.kind == Kind::Symbol && qualified_name(&operand).is_some() => {
                    self.message(operand)?
                }
                _ => break,
            };
        }
        self.depth = depth;
        Ok(operand)
    }

    fn selection(&mut self, operand: Expr) -> Parsed<Expr> {
        self.deepen()?;
        let dot_at = self.advance().at;
        let optional = self.accept("?").is_some();
        let is_quoted = self.peek().kind == Kind::QuotedIdent;
        let field = self.field_name()?;
        if !optional && !is_quoted && self.at_symbol("(") {
            let open_at = self.advance().at;
            let args = self.arguments()?;
            return Ok(self.member_call(open_at, operand, field, args));
        }
        if optional && !self.macros.optionals {
            return Ok(self.report_error(dot_at, "unsupported syntax '.?'"));
        }
        let mode = if optional { SelectMode::Optional } else { SelectMode::Value };
        Ok(self.node(dot_at, ExprKind::Select(Box::new(Select { operand, field, mode }))))
    }

    fn field_name(&mut self) -> Parsed<String> {
        let name = self.advance();
        match name.kind {
            Kind::Ident => Ok(name.text.to_owned()),
            Kind::QuotedIdent => {
                self.errors.report(name.at, "unsupported syntax: '`'");
                Ok(name.text.trim_matches('`').to_owned())
            }
            Kind::True | Kind::False | Kind::Null => {
                let message = format!("Syntax error: mismatched input '{}' expecting IDENTIFIER", name.text);
                self.errors.report(name.at, message);
                Err(Stop)
            }
            _ => {
                let text = if name.kind == Kind::End { "" } else { name.text };
                self.errors
                    .report(name.at, format!("Syntax error: no viable alternative at input '.{text}'"));
                Err(Stop)
            }
        }
    }

    fn index(&mut self, operand: Expr) -> Parsed<Expr> {
        self.deepen()?;
        let open_at = self.advance().at;
        let optional = self.accept("?").is_some();
        let index = self.expression()?;
        self.expect("]")?;
        if optional && !self.macros.optionals {
            return Ok(self.report_error(open_at, "unsupported syntax '[?'"));
        }
        let function = if optional { operator::OPT_INDEX } else { operator::INDEX };
        Ok(self.call(open_at, function, vec![operand, index]))
    }

    fn arguments(&mut self) -> Parsed<Vec<Expr>> {
        let mut args = Vec::new();
        if self.accept(")").is_some() {
            return Ok(args);
        }
        loop {
            args.push(self.expression()?);
            if self.accept(",").is_none() {
                self.expect(")")?;
                return Ok(args);
            }
        }
    }

    fn primary(&mut self) -> Parsed<Expr> {
        let token = self.peek();
        match (token.kind, token.text) {
            (Kind::Ident, _) => self.identifier(""),
            (Kind::Symbol, "(") => self.parenthesised(),
            (Kind::Symbol, "[") => self.list(),
            (Kind::Symbol, "{") => self.map(),
            (Kind::Symbol, "." | "-") => self.prefixed(),
            _ => self.constant(),
        }
    }

    fn parenthesised(&mut self) -> Parsed<Expr> {
        self.advance();
        let inner = self.expression()?;
        self.expect(")")?;
        Ok(inner)
    }

    /// A name with a leading dot, or a negative number.
    fn prefixed(&mut self) -> Parsed<Expr> {
        let sign = self.peek();
        let next = self.peek_at(1);
        let value = match (sign.text, next.kind) {
            (".", Kind::Ident) => {
                self.advance();
                return self.identifier(".");
            }
            ("-", Kind::Int) => literal::int(next.text, true),
            ("-", Kind::Double) => literal::double(next.text, true),
            _ => return Err(self.not_an_expression()),
        };
        self.next += 2;
        Ok(self.literal(sign.at, value))
    }

    fn constant(&mut self) -> Parsed<Expr> {
        let token = self.peek();
        let value = match token.kind {
            Kind::Int => literal::int(token.text, false),
            Kind::Uint => literal::uint(token.text),
            Kind::Double => literal::double(token.text, false),
            Kind::String => literal::text(token.text, false),
            Kind::Bytes => literal::text(token.text, true),
            Kind::True => Ok(Literal::Bool(true)),
            Kind::False => Ok(Literal::Bool(false)),
            Kind::Null => Ok(Literal::Null),
            _ => return Err(self.not_an_expression()),
        };
        self.advance();
        Ok(self.literal(token.at, value))
    }

    fn literal(&mut self, at: u32, value: Result<Literal, &'static str>) -> Expr {
        match value {
            Ok(value) => self.node(at, ExprKind::Literal(value)),
            Err(message) => self.report_error(at, message),
        }
    }

    fn not_an_expression(&mut self) -> Stop {
        self.unexpected(EXPRESSION_START, |token| match token.kind {
            Kind::Symbol => matches!(token.text, "[" | "{" | "(" | "." | "-" | "!"),
            Kind::QuotedIdent | Kind::End => false,
            _ => true,
        })
    }

    fn identifier(&mut self, prefix: &str) -> Parsed<Expr> {
        let token = self.advance();
        let called = self.accept("(").map(|open| open.at);
        let args = if called.is_some() { self.arguments()? } else { Vec::new() };
        Ok(self.named(prefix, token, called, args))
    }

    fn named(&mut self, prefix: &str, token: Token<'_>, called: Option<u32>, args: Vec<Expr>) -> Expr {
        if RESERVED.contains(&token.text) {
            return self.report_error(token.at, format!("reserved identifier: {}", token.text));
        }
        let name = format!("{prefix}{}", token.text);
        match called {
            Some(open_at) => self.global_call(open_at, name, args),
            None => self.node(token.at, ExprKind::Ident(name)),
        }
    }
}

// ---- literals of lists, maps and messages ----

impl Parser<'_> {
    fn list(&mut self) -> Parsed<Expr> {
        let open = self.advance();
        let mut elements = Vec::new();
        while self.accept("]").is_none() {
            let optional = self.optional_mark();
            elements.push(Element { optional, value: self.expression()? });
            if self.accept(",").is_none() {
                self.expect("]")?;
                break;
            }
        }
        Ok(self.node(open.at, ExprKind::List(elements)))
    }

    fn map(&mut self) -> Parsed<Expr> {
        let open = self.advance();
        let mut entries = Vec::new();
        while self.accept("}").is_none() {
            self.entry(&mut entries)?;
            if self.accept(",").is_none() {
                self.expect("}")?;
                break;
            }
        }
        Ok(self.node(open.at, ExprKind::Map(entries)))
    }

    fn entry(&mut self, entries: &mut Vec<Entry>) -> Parsed<()> {
        let optional = self.optional_mark();
        let key = self.expression()?;
        self.expect(":")?;
        entries.push(Entry { optional, key, value: self.expression()? });
        Ok(())
    }

    fn message(&mut self, name: Expr) -> Parsed<Expr> {
        let open = self.advance();
        let type_name = qualified_name(&name).unwrap_or_default();
        let mut fields = Vec::new();
        while self.accept("}").is_none() {
            let optional = self.optional_mark();
            let field = self.peek();
            if field.kind != Kind::Ident {
                let expected = "{'}', ',', '?', IDENTIFIER, ESC_IDENTIFIER}";
                return Err(self.unexpected(expected, |token| token.kind == Kind::Ident));
            }
            self.advance();
            let colon = self.expect(":")?;
            let id = self.id(colon.at);
            fields.push(FieldInit { id, optional, name: field.text.to_owned(), value: self.expression()? });
            if self.accept(",").is_none() {
                self.expect("}")?;
                break;
            }
        }
        Ok(self.node(open.at, ExprKind::Message(Box::new(Message { type_name, fields }))))
    }

    fn optional_mark(&mut self) -> bool {
        let mark = self.accept("?");
        if let (Some(mark), false) = (mark, self.macros.optionals) {
            self.errors.report(mark.at, "unsupported syntax '?'");
        }
        mark.is_some()
    }
}

/// `a.b.c` as one name, if the node is nothing but identifiers.
pub(crate) fn qualified_name(expr: &Expr) -> Option<String> {
    match &expr.kind {
        ExprKind::Ident(name) => Some(name.clone()),
        ExprKind::Select(select) if select.mode == SelectMode::Value => {
            Some(format!("{}.{}", qualified_name(&select.operand)?, select.field))
        }
        _ => None,
    }
}
