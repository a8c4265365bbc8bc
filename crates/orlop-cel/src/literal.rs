//! The values of literal tokens: quotes, escapes and number bases.
//!
//! The lexer has already made sure that escapes are well formed; what is left to refuse is a number out of range
//! and an escape that names no character (or, in bytes, one that only strings have).

use crate::ast::Literal;

/// The value of a string or bytes token, quotes and prefix included.
pub(crate) fn text(token: &str, is_bytes: bool) -> Result<Literal, &'static str> {
    let token = if is_bytes { &token[1..] } else { token };
    let raw = token.starts_with(['r', 'R']);
    let quoted = if raw { &token[1..] } else { token };
    let width =
        if quoted.len() >= 6 && (quoted.starts_with("'''") || quoted.starts_with("\"\"\"")) { 3 } else { 1 };
    // Line breaks inside a literal always count as one newline, whatever the file uses.
    let body = quoted[width..quoted.len() - width].replace("\r\n", "\n").replace('\r', "\n");
    let value = if raw { body.into_bytes() } else { unescape(&body, is_bytes)? };
    if is_bytes {
        return Ok(Literal::Bytes(value));
    }
    String::from_utf8(value).map(Literal::String).map_err(|_| "unable to unescape string")
}

fn unescape(body: &str, is_bytes: bool) -> Result<Vec<u8>, &'static str> {
    let mut out = Vec::with_capacity(body.len());
    let mut rest = body;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        let escape = &rest[at + 1..];
        let letter =
            escape.chars().next().ok_or("unable to unescape string, found '\\' as last character")?;
        let (code, length) = match letter {
            'a' => (0x07, 1),
            'b' => (0x08, 1),
            'f' => (0x0c, 1),
            'n' => (0x0a, 1),
            'r' => (0x0d, 1),
            't' => (0x09, 1),
            'v' => (0x0b, 1),
            '\\' | '\'' | '"' | '`' | '?' => (letter as u32, 1),
            'x' | 'X' => (digits(escape, 1, 2, 16)?, 3),
            'u' if !is_bytes => (digits(escape, 1, 4, 16)?, 5),
            'U' if !is_bytes => (digits(escape, 1, 8, 16)?, 9),
            '0'..='3' => (digits(escape, 0, 3, 8)?, 3),
            _ => return Err("unable to unescape string"),
        };
        if is_bytes {
            out.push(u8::try_from(code).map_err(|_| "unable to unescape string")?);
        } else {
            let c = char::from_u32(code).ok_or("invalid unicode code point")?;
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
        rest = &escape[length..];
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(out)
}

fn digits(escape: &str, from: usize, length: usize, radix: u32) -> Result<u32, &'static str> {
    let text = escape.get(from..from + length).ok_or("unable to unescape string")?;
    u32::from_str_radix(text, radix).map_err(|_| "unable to unescape string")
}

/// The value of an integer token with the sign that stood before it.
pub(crate) fn int(token: &str, negative: bool) -> Result<Literal, &'static str> {
    let (digits, radix) = base(token);
    let signed = if negative { format!("-{digits}") } else { digits.to_owned() };
    i64::from_str_radix(&signed, radix).map(Literal::Int).map_err(|_| "invalid int literal")
}

/// The value of an unsigned token such as `1u`.
pub(crate) fn uint(token: &str) -> Result<Literal, &'static str> {
    let (digits, radix) = base(&token[..token.len() - 1]);
    u64::from_str_radix(digits, radix).map(Literal::Uint).map_err(|_| "invalid uint literal")
}

/// The value of a floating-point token with the sign that stood before it.
pub(crate) fn double(token: &str, negative: bool) -> Result<Literal, &'static str> {
    match token.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(Literal::Double(if negative { -value } else { value })),
        _ => Err("invalid double literal"),
    }
}

fn base(digits: &str) -> (&str, u32) {
    match digits.strip_prefix("0x") {
        Some(hex) => (hex, 16),
        None => (digits, 10),
    }
}
