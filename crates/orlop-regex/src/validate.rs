//! Validation of patterns without compiling them.
//!
//! Compiling takes up to 30 ms at the size limit, and a hostile CustomResourceDefinition holds hundreds of such
//! patterns. Parsing takes microseconds. The parsed pattern gives an estimate of the compiled size, which decides all
//! but the cases close to the limit; those are compiled, within a budget shared by all patterns of a definition.

use crate::{COMPILED_BYTES_MAX, dialect, syntax_error};
use regex_syntax::ast::parse::Parser;
use regex_syntax::ast::{
    Ast, ClassBracketed, ClassSet, ClassSetItem, Repetition, RepetitionKind, RepetitionRange,
};
use regex_syntax::hir::translate::Translator;

/// Patterns of at most this many estimated states always compile within [`COMPILED_BYTES_MAX`].
const STATES_SMALL: u64 = 12_000;
/// Patterns of more estimated states never compile within [`COMPILED_BYTES_MAX`].
const STATES_OVERSIZED: u64 = 2_000_000;
/// Cost charged for compiling a pattern, at least.
const STATES_COMPILED: u64 = 100_000;
/// Estimated states that the patterns of one definition may have together.
const STATES_BUDGET: u64 = 5_000_000;
/// Estimated states of a class that is not ASCII: `.`, `[^a]`.
const STATES_UTF8: u64 = 8;
/// Estimated states of a Unicode property: `\p{L}`.
const STATES_PROPERTY: u64 = 500;

/// Work that validation may spend on the patterns of one definition.
#[derive(Debug)]
pub struct ValidationBudget {
    states: u64,
}

impl Default for ValidationBudget {
    fn default() -> Self {
        Self { states: STATES_BUDGET }
    }
}

/// Validates a pattern: its syntax, and that it compiles within [`COMPILED_BYTES_MAX`].
pub fn validate(pattern: &str, budget: &mut ValidationBudget) -> Result<(), String> {
    let translated = dialect::translate(pattern);
    let states = parse(pattern, &translated)?;
    let compiles = states > STATES_SMALL;
    let cost = if compiles { states.max(STATES_COMPILED) } else { states };
    if states > STATES_OVERSIZED || cost > budget.states {
        return Err(syntax_error::too_large(pattern));
    }
    budget.states -= cost;
    if compiles { crate::compile(pattern, COMPILED_BYTES_MAX).map(drop) } else { Ok(()) }
}

/// Parses a pattern and returns the estimated number of states of its automaton.
pub(crate) fn parse(pattern: &str, translated: &str) -> Result<u64, String> {
    syntax_error::check_repetitions(pattern)?;
    let to_go = |error: &dyn std::fmt::Display| syntax_error::to_go(&error.to_string(), pattern);
    let ast = Parser::new().parse(translated).map_err(|error| to_go(&error))?;
    let size = estimate(&ast, translated)?;
    if size.has_properties && size.states <= STATES_OVERSIZED {
        // Names of properties are resolved here.
        Translator::new().translate(translated, &ast).map_err(|error| to_go(&error))?;
    }
    Ok(size.states)
}

/// Estimated size of a part of a pattern.
struct Size {
    states: u64,
    /// Product of the nested repeat counts.
    repeats: u64,
    has_properties: bool,
}

impl Size {
    fn leaf(states: u64) -> Self {
        Self { states, repeats: 1, has_properties: false }
    }
}

/// The parser limits nesting, so recursion is bounded.
fn estimate(ast: &Ast, text: &str) -> Result<Size, String> {
    Ok(match ast {
        Ast::Empty(_) | Ast::Flags(_) | Ast::Assertion(_) | Ast::ClassPerl(_) => Size::leaf(1),
        // Under (?i) a literal is a class.
        Ast::Literal(literal) => Size::leaf(2 * literal.c.len_utf8() as u64),
        Ast::Dot(_) => Size::leaf(STATES_UTF8),
        Ast::ClassUnicode(_) => Size { has_properties: true, ..Size::leaf(STATES_PROPERTY) },
        Ast::ClassBracketed(class) => bracketed(class),
        Ast::Repetition(repetition) => repeated(repetition, text)?,
        Ast::Group(group) => {
            let inner = estimate(&group.ast, text)?;
            Size { states: inner.states.saturating_add(2), ..inner }
        }
        Ast::Alternation(alternation) => sum(&alternation.asts, text)?,
        Ast::Concat(concat) => sum(&concat.asts, text)?,
    })
}

fn sum(parts: &[Ast], text: &str) -> Result<Size, String> {
    let mut total = Size::leaf(1);
    for part in parts {
        let part = estimate(part, text)?;
        total.states = total.states.saturating_add(part.states);
        total.repeats = total.repeats.max(part.repeats);
        total.has_properties |= part.has_properties;
    }
    Ok(total)
}

/// Go refuses nested repeat counts with a product of more than 1000, at the operator that exceeds it.
fn repeated(repetition: &Repetition, text: &str) -> Result<Size, String> {
    let inner = estimate(&repetition.ast, text)?;
    let (copies, repeats) = match &repetition.op.kind {
        RepetitionKind::ZeroOrOne | RepetitionKind::ZeroOrMore | RepetitionKind::OneOrMore => {
            (1, inner.repeats)
        }
        RepetitionKind::Range(range) => {
            let (min, max) = match range {
                RepetitionRange::Exactly(count) => (*count, Some(*count)),
                RepetitionRange::AtLeast(min) => (*min, None),
                RepetitionRange::Bounded(min, max) => (*min, Some(*max)),
            };
            let count = u64::from(max.unwrap_or(min));
            if max == Some(0) {
                (0, 1)
            } else {
                let repeats = inner.repeats.saturating_mul(count.max(1));
                if repeats > syntax_error::REPEAT_MAX && count >= 2 {
                    let span = repetition.op.span;
                    let operator = text.get(span.start.offset..span.end.offset).unwrap_or_default();
                    return Err(syntax_error::invalid_repeat(operator));
                }
                (count.max(1), repeats)
            }
        }
    };
    let states = inner.states.saturating_add(1).saturating_mul(copies).saturating_add(1);
    Ok(Size { states, repeats, has_properties: inner.has_properties })
}

fn bracketed(class: &ClassBracketed) -> Size {
    let mut size = set(&class.kind);
    if class.negated {
        size.states += STATES_UTF8;
    }
    size
}

fn set(set: &ClassSet) -> Size {
    match set {
        ClassSet::Item(found) => item(found),
        ClassSet::BinaryOp(operation) => {
            let (left, right) = (self::set(&operation.lhs), self::set(&operation.rhs));
            Size {
                states: left.states.saturating_add(right.states),
                repeats: 1,
                has_properties: left.has_properties || right.has_properties,
            }
        }
    }
}

fn item(found: &ClassSetItem) -> Size {
    match found {
        ClassSetItem::Empty(_) | ClassSetItem::Ascii(_) | ClassSetItem::Perl(_) => Size::leaf(1),
        ClassSetItem::Literal(literal) => Size::leaf(2 * literal.c.len_utf8() as u64),
        ClassSetItem::Range(range) if range.end.c.is_ascii() => Size::leaf(1),
        ClassSetItem::Range(_) => Size::leaf(STATES_UTF8),
        ClassSetItem::Unicode(_) => Size { has_properties: true, ..Size::leaf(STATES_PROPERTY) },
        ClassSetItem::Bracketed(class) => bracketed(class),
        ClassSetItem::Union(union) => {
            let mut total = Size::leaf(1);
            for part in &union.items {
                let part = item(part);
                total.states = total.states.saturating_add(part.states);
                total.has_properties |= part.has_properties;
            }
            total
        }
    }
}
