//! Parser of JSONPath templates and paths.

use super::{Comparison, Filter, Operand, Part, Step};
use serde_json::Value;

/// A parsed template or path.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    pub(super) parts: Vec<Part>,
}

/// Error of parsing a JSONPath.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPath {
    #[error("unclosed action")]
    UnclosedAction,
    #[error("unterminated array")]
    UnterminatedArray,
    #[error("invalid array index {0}")]
    ArrayIndex(String),
    #[error("unterminated filter")]
    UnterminatedFilter,
    #[error("unterminated quoted string")]
    UnterminatedText,
    #[error("not in range, nothing to end")]
    NothingToEnd,
    #[error("unclosed range")]
    UnclosedRange,
    #[error("unrecognized character in action: {0:?}")]
    Character(char),
    #[error("nested too deep")]
    TooDeep,
}

/// Limit on nested filters and unions.
const DEPTH_MAX: usize = 16;

impl JsonPath {
    /// Parses a template: text with `{…}` parts.
    pub fn template(text: &str) -> Result<Self, InvalidPath> {
        let mut open: Vec<(Vec<Step>, Vec<Part>)> = Vec::new();
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let Some((before, after)) = rest.split_once('{') else {
                parts.push(Part::Text(rest.to_owned()));
                break;
            };
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            let end = closing_brace(after).ok_or(InvalidPath::UnclosedAction)?;
            let action = after[..end].trim();
            rest = &after[end + 1..];
            if action == "end" {
                let (over, mut outer) = open.pop().ok_or(InvalidPath::NothingToEnd)?;
                outer.push(Part::Range { over, body: std::mem::take(&mut parts) });
                parts = outer;
            } else if let Some(over) =
                action.strip_prefix("range").filter(|over| over.starts_with([' ', '.', '[']))
            {
                if open.len() >= DEPTH_MAX {
                    return Err(InvalidPath::TooDeep);
                }
                open.push((steps(over.trim(), 0)?, std::mem::take(&mut parts)));
            } else {
                parts.push(action_part(action)?);
            }
        }
        if open.is_empty() { Ok(Self { parts }) } else { Err(InvalidPath::UnclosedRange) }
    }

    /// Parses a printer column's path, without braces: `.spec.replicas`.
    pub fn column(path: &str) -> Result<Self, InvalidPath> {
        Ok(Self { parts: vec![Part::Path(steps(path.trim(), 0)?)] })
    }
}

/// Returns the end of an action: a brace outside quotes.
fn closing_brace(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut escaped = false;
    for (index, character) in text.char_indices() {
        match (quote, character) {
            _ if escaped => escaped = false,
            (_, '\\') => escaped = true,
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(character),
            (None, '}') => return Some(index),
            _ => {}
        }
    }
    None
}

fn action_part(action: &str) -> Result<Part, InvalidPath> {
    match action.chars().next() {
        Some('\'' | '"') => quoted(action).map(|(text, _)| Part::Text(text)),
        _ => Ok(Part::Path(steps(action, 0)?)),
    }
}

/// Parses a leading quoted string and returns its length.
fn quoted(text: &str) -> Result<(String, usize), InvalidPath> {
    let mut characters = text.char_indices();
    let Some((_, open)) = characters.next() else { return Err(InvalidPath::UnterminatedText) };
    let mut out = String::new();
    while let Some((index, character)) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some((_, 'n')) => out.push('\n'),
                Some((_, 't')) => out.push('\t'),
                Some((_, 'r')) => out.push('\r'),
                Some((_, other)) => out.push(other),
                None => return Err(InvalidPath::UnterminatedText),
            },
            c if c == open => return Ok((out, index + c.len_utf8())),
            c => out.push(c),
        }
    }
    Err(InvalidPath::UnterminatedText)
}

fn steps(path: &str, depth: usize) -> Result<Vec<Step>, InvalidPath> {
    if depth > DEPTH_MAX {
        return Err(InvalidPath::TooDeep);
    }
    let mut out = Vec::new();
    let mut rest = path;
    while let Some(first) = rest.chars().next() {
        match first {
            '$' => {
                out.push(Step::Root);
                rest = &rest[1..];
            }
            '@' if out.is_empty() && rest.len() == path.len() => rest = &rest[1..],
            '[' => {
                let end = closing_bracket(rest).ok_or(InvalidPath::UnterminatedArray)?;
                out.push(bracket(rest[1..end].trim(), depth)?);
                rest = &rest[end + 1..];
            }
            '.' if rest.starts_with("..") => {
                out.push(Step::Recursive);
                // `..a` matches the field in all descendants.
                rest = &rest[2..];
                if !rest.is_empty() && !rest.starts_with(['[', '.', '*']) {
                    rest = field(rest, &mut out)?;
                }
            }
            '.' => rest = field(&rest[1..], &mut out)?,
            '*' => {
                out.push(Step::Wildcard);
                rest = &rest[1..];
            }
            c if c.is_alphabetic() || c == '_' => rest = field(rest, &mut out)?,
            c => return Err(InvalidPath::Character(c)),
        }
    }
    Ok(out)
}

/// Parses a field name; a backslash escapes the next character.
fn field<'t>(text: &'t str, out: &mut Vec<Step>) -> Result<&'t str, InvalidPath> {
    if let Some(rest) = text.strip_prefix('*') {
        out.push(Step::Wildcard);
        return Ok(rest);
    }
    let mut name = String::new();
    let mut characters = text.char_indices();
    let mut end = text.len();
    while let Some((index, character)) = characters.next() {
        match character {
            '\\' => name.extend(characters.next().map(|(_, escaped)| escaped)),
            '.' | '[' => {
                end = index;
                break;
            }
            c if c.is_whitespace()
                || matches!(c, '{' | '}' | '@' | '$' | '?' | '(' | ')' | ',' | '=' | '<' | '>') =>
            {
                return Err(InvalidPath::Character(c));
            }
            c => name.push(c),
        }
    }
    if !name.is_empty() {
        out.push(Step::Field(name));
    }
    Ok(&text[end..])
}

/// Returns the matching closing bracket, skipping quotes and nested brackets.
fn closing_bracket(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    let mut quote = None;
    let mut escaped = false;
    for (index, character) in text.char_indices() {
        match (quote, character) {
            _ if escaped => escaped = false,
            (_, '\\') => escaped = true,
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(character),
            (None, '[') => depth += 1,
            (None, ']') => {
                depth -= 1;
                if depth == 0 {
                    return Some(index);
                }
            }
            _ => {}
        }
    }
    None
}

fn bracket(inside: &str, depth: usize) -> Result<Step, InvalidPath> {
    if let Some(condition) = inside.strip_prefix("?(") {
        let condition = condition.strip_suffix(')').ok_or(InvalidPath::UnterminatedFilter)?;
        return filter(condition, depth + 1);
    }
    let branches = split(inside, ',');
    if branches.len() > 1 {
        let branches =
            branches.into_iter().map(|branch| bracket(branch.trim(), depth + 1).map(|step| vec![step]));
        return Ok(Step::Union(branches.collect::<Result<_, _>>()?));
    }
    match inside.chars().next() {
        Some('*') if inside == "*" => Ok(Step::Wildcard),
        Some('\'' | '"') => match quoted(inside)? {
            (name, length) if length == inside.len() => Ok(Step::Field(name)),
            _ => Err(InvalidPath::ArrayIndex(inside.to_owned())),
        },
        _ => {
            let parts: Vec<_> = inside.split(':').collect();
            let number = |index: usize| match parts.get(index).map(|part| part.trim()) {
                None | Some("") => Ok(None),
                Some(text) => text.parse().map(Some).map_err(|_| InvalidPath::ArrayIndex(inside.to_owned())),
            };
            let single = parts.len() == 1;
            if parts.len() > 3 {
                return Err(InvalidPath::ArrayIndex(inside.to_owned()));
            }
            // `[]` is the first item, as in Go.
            let from = number(0)?.or(single.then_some(0));
            Ok(Step::Slice { from, to: number(1)?, by: number(2)?, single })
        }
    }
}

/// Splits at separators outside quotes.
fn split(text: &str, separator: char) -> Vec<&str> {
    let mut out = Vec::new();
    let (mut start, mut quote) = (0, None);
    for (index, character) in text.char_indices() {
        match (quote, character) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(character),
            (None, c) if c == separator => {
                out.push(&text[start..index]);
                start = index + c.len_utf8();
            }
            _ => {}
        }
    }
    out.push(&text[start..]);
    out
}

fn filter(condition: &str, depth: usize) -> Result<Step, InvalidPath> {
    const OPERATORS: [(&str, Comparison); 6] = [
        ("==", Comparison::Equal),
        ("!=", Comparison::NotEqual),
        ("<=", Comparison::LessOrEqual),
        (">=", Comparison::GreaterOrEqual),
        ("<", Comparison::Less),
        (">", Comparison::Greater),
    ];
    let mut quote = None;
    for (index, character) in condition.char_indices() {
        match (quote, character) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => continue,
            (None, '\'' | '"') => quote = Some(character),
            (None, '=' | '!' | '<' | '>') => {
                let found = OPERATORS.iter().find(|(name, _)| condition[index..].starts_with(name));
                if let Some((name, comparison)) = found {
                    let left = operand(condition[..index].trim(), depth)?;
                    let right = operand(condition[index + name.len()..].trim(), depth)?;
                    return Ok(Step::Filter(Box::new(Filter {
                        left,
                        comparison: Some((*comparison, right)),
                    })));
                }
            }
            _ => {}
        }
    }
    let left = operand(condition.trim(), depth)?;
    Ok(Step::Filter(Box::new(Filter { left, comparison: None })))
}

fn operand(text: &str, depth: usize) -> Result<Operand, InvalidPath> {
    match text.chars().next() {
        None => Err(InvalidPath::UnterminatedFilter),
        Some('\'' | '"') => quoted(text).map(|(text, _)| Operand::Literal(text.into())),
        Some('@' | '$' | '.' | '[') => steps(text, depth).map(Operand::Path),
        Some(first) => match text {
            "true" => Ok(Operand::Literal(Value::Bool(true))),
            "false" => Ok(Operand::Literal(Value::Bool(false))),
            _ => match serde_json::from_str::<Value>(text) {
                Ok(number @ Value::Number(_)) => Ok(Operand::Literal(number)),
                _ => Err(InvalidPath::Character(first)),
            },
        },
    }
}
