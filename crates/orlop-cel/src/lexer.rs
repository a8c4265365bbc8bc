//! The lexer.
//!
//! A token is a slice of the source with its character offset. Characters that begin no token are reported and
//! skipped. The parser handles escapes, numbers and reserved words. The lexer never fails and has no look-ahead
//! beyond the current token.

use crate::error::CompileErrors;

/// Kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ident,
    /// An identifier in backticks.
    QuotedIdent,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    True,
    False,
    Null,
    /// Punctuation, operators and the word `in`, distinguished by their text.
    Symbol,
    End,
}

/// One token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'s> {
    pub(crate) kind: Kind,
    pub(crate) text: &'s str,
    /// Character offset of its first character.
    pub(crate) at: u32,
}

const PAIRS: [&str; 6] = ["==", "!=", "<=", ">=", "&&", "||"];
const SINGLES: &str = "<>[]{}().,-!?:+*/%";

/// Splits `text`; the last token is always [`Kind::End`].
pub(crate) fn tokens<'s>(text: &'s str, errors: &mut CompileErrors) -> Vec<Token<'s>> {
    let mut lexer = Lexer { rest: text, at: 0 };
    let mut tokens = Vec::new();
    while let Some(first) = lexer.rest.chars().next() {
        if matches!(first, ' ' | '\t' | '\r' | '\n' | '\u{c}') {
            lexer.take(1);
        } else if lexer.rest.starts_with("//") {
            lexer.take(lexer.rest.find('\n').unwrap_or(lexer.rest.len()));
        } else {
            match lexer.token() {
                Ok(token) => tokens.push(token),
                Err((at, text)) => {
                    errors.report(at, format!("Syntax error: token recognition error at: '{text}'"));
                }
            }
        }
    }
    tokens.push(Token { kind: Kind::End, text: "<EOF>", at: lexer.at });
    tokens
}

struct Lexer<'s> {
    rest: &'s str,
    at: u32,
}

type Unrecognised<'s> = (u32, &'s str);

impl<'s> Lexer<'s> {
    /// Consumes `bytes` bytes, which must end on a character boundary.
    fn take(&mut self, bytes: usize) -> &'s str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        self.at += taken.chars().count() as u32;
        taken
    }

    fn token(&mut self) -> Result<Token<'s>, Unrecognised<'s>> {
        let at = self.at;
        let bytes = self.rest.as_bytes();
        let first = bytes[0];
        let (kind, length) = if let Some((kind, quote_at)) = string_start(bytes) {
            match string_end(self.rest, quote_at) {
                Ok(end) => (kind, end),
                Err(bad) => return Err((at, self.take(bad))),
            }
        } else if first.is_ascii_alphabetic() || first == b'_' {
            let end = count(bytes, |b| b.is_ascii_alphanumeric() || b == b'_');
            (word_kind(&self.rest[..end]), end)
        } else if first.is_ascii_digit() || (first == b'.' && bytes.get(1).is_some_and(u8::is_ascii_digit)) {
            number(bytes)
        } else if first == b'`' {
            let inner = count(&bytes[1..], |b| b.is_ascii_alphanumeric() || b"_.-/ ".contains(&b));
            if inner == 0 || bytes.get(inner + 1) != Some(&b'`') {
                return Err((at, self.take(next_boundary(self.rest, inner + 1))));
            }
            (Kind::QuotedIdent, inner + 2)
        } else if PAIRS.iter().any(|pair| self.rest.starts_with(pair)) {
            (Kind::Symbol, 2)
        } else if first.is_ascii() && SINGLES.contains(first as char) {
            (Kind::Symbol, 1)
        } else if matches!(first, b'=' | b'&' | b'|') {
            // Half an operator: the character that is not its other half is lost with it.
            return Err((at, self.take(next_boundary(self.rest, 1))));
        } else {
            return Err((at, self.take(next_boundary(self.rest, 0))));
        };
        Ok(Token { kind, text: self.take(length), at })
    }
}

fn word_kind(word: &str) -> Kind {
    match word {
        "true" => Kind::True,
        "false" => Kind::False,
        "null" => Kind::Null,
        "in" => Kind::Symbol,
        _ => Kind::Ident,
    }
}

fn count(bytes: &[u8], accept: impl Fn(u8) -> bool) -> usize {
    bytes.iter().take_while(|b| accept(**b)).count()
}

/// The byte offset after the character that begins at or spans `from`.
fn next_boundary(text: &str, from: usize) -> usize {
    (from + 1..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len())
}

fn number(bytes: &[u8]) -> (Kind, usize) {
    if bytes.starts_with(b"0x") {
        let digits = count(&bytes[2..], |b| b.is_ascii_hexdigit());
        if digits > 0 {
            return unsigned(bytes, 2 + digits);
        }
    }
    let whole = count(bytes, |b| b.is_ascii_digit());
    let mut end = whole;
    if bytes.get(end) == Some(&b'.') {
        let fraction = count(&bytes[end + 1..], |b| b.is_ascii_digit());
        if fraction > 0 {
            end += 1 + fraction;
        }
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let digits = count(bytes.get(end + 1 + sign..).unwrap_or_default(), |b| b.is_ascii_digit());
        if digits > 0 {
            end += 1 + sign + digits;
        }
    }
    if end > whole { (Kind::Double, end) } else { unsigned(bytes, whole) }
}

fn unsigned(bytes: &[u8], end: usize) -> (Kind, usize) {
    match bytes.get(end) {
        Some(b'u' | b'U') => (Kind::Uint, end + 1),
        _ => (Kind::Int, end),
    }
}

/// Returns the offset of the opening quote if a string literal begins here.
fn string_start(bytes: &[u8]) -> Option<(Kind, usize)> {
    let mut at = 0;
    let mut kind = Kind::String;
    if matches!(bytes.first(), Some(b'b' | b'B')) {
        kind = Kind::Bytes;
        at += 1;
    }
    if matches!(bytes.get(at), Some(b'r' | b'R')) {
        at += 1;
    }
    matches!(bytes.get(at), Some(b'"' | b'\'')).then_some((kind, at))
}

/// The byte offset after the closing quote, or after the character at which no string is possible any more.
fn string_end(text: &str, quote_at: usize) -> Result<usize, usize> {
    let bytes = text.as_bytes();
    let raw = quote_at > 0 && matches!(bytes[quote_at - 1], b'r' | b'R');
    let quote = &text[quote_at..=quote_at];
    let triple = quote.repeat(3);
    let long = text[quote_at..].starts_with(&triple);
    let close = if long { triple.as_str() } else { quote };
    let mut at = quote_at + close.len();
    while let Some(c) = text.get(at..).and_then(|rest| rest.chars().next()) {
        if text[at..].starts_with(close) {
            return Ok(at + close.len());
        }
        if !long && matches!(c, '\n' | '\r') {
            return Err(at + 1);
        }
        if c == '\\' && !raw {
            at += escape_length(text, at)?;
        } else {
            at += c.len_utf8();
        }
    }
    Err(text.len())
}

/// Length of the escape sequence at `at`, or the offset after the character that spoils it.
fn escape_length(text: &str, at: usize) -> Result<usize, usize> {
    let bytes = text.as_bytes();
    let digits = |from: usize, wanted: usize, accept: fn(u8) -> bool| {
        let found = count(&bytes[from..bytes.len().min(from + wanted)], accept);
        if found == wanted { Ok(from + wanted - at) } else { Err(next_boundary(text, from + found)) }
    };
    match bytes.get(at + 1) {
        Some(b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'"' | b'\'' | b'\\' | b'?' | b'`') => Ok(2),
        Some(b'x' | b'X') => digits(at + 2, 2, |b| b.is_ascii_hexdigit()),
        Some(b'u') => digits(at + 2, 4, |b| b.is_ascii_hexdigit()),
        Some(b'U') => digits(at + 2, 8, |b| b.is_ascii_hexdigit()),
        Some(b'0'..=b'3') => digits(at + 2, 2, |b| (b'0'..=b'7').contains(&b)),
        _ => Err(next_boundary(text, at + 1)),
    }
}
