//! `'%s has %d'.format([name, count])`.
//!
//! The same walk over the format string serves evaluation and the static check of literals ([`check_types`]). Two
//! styles exist: Kubernetes pins a version of the library that prints fixed-point numbers with thousands separators
//! and exponents as powers of ten (`3.14×10⁰²`); newer ones print them plainly.

use orlop_regex::go_quote::quote;
use std::fmt::Write as _;

use crate::error::EvalError;
use crate::functions::{CallContext, EvalResult};
use crate::library::limit_bytes;
use crate::number::scientific;
use crate::types::Type;
use crate::value::{Key, List, Map, Value};

const PRECISION: usize = 6;
/// cel-go has no limit before a later version; this one keeps results small.
const PRECISION_MAX: usize = 100;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Local,
    Plain,
}

/// One `%…` of a format string.
#[derive(Clone, Copy)]
struct Clause {
    letter: char,
    precision: Option<usize>,
}

/// A piece of a format string.
enum Piece<'t> {
    Text(&'t str),
    Percent,
    Clause(Clause),
}

pub(crate) fn format_local<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    format(args, Style::Local)
}

pub(crate) fn format_plain<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    format(args, Style::Plain)
}

fn format<'a>(args: &[Value<'a>], style: Style) -> EvalResult<'a> {
    let [Value::String(text), Value::List(values)] = args else { return Err(EvalError::no_such_overload()) };
    let mut out = String::with_capacity(text.len());
    let mut index = 0;
    for piece in pieces(text) {
        match piece.map_err(EvalError::Failed)? {
            Piece::Text(text) => out.push_str(text),
            Piece::Percent => out.push('%'),
            Piece::Clause(clause) => {
                let value = values
                    .get(index)
                    .unwrap_or_else(|| Err(EvalError::Failed(format!("index {index} out of range"))))?;
                let shown = show(clause, &value, style)
                    .map_err(|error| EvalError::Failed(format!("error during formatting: {error}")))?;
                limit_bytes("format", out.len() + shown.len())?;
                out.push_str(&shown);
                index += 1;
            }
        }
    }
    Ok(Value::string(out))
}

/// Splits a format string.
fn pieces(text: &str) -> impl Iterator<Item = Result<Piece<'_>, String>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let at = rest.find('%').unwrap_or(rest.len());
        if at > 0 {
            let (plain, after) = rest.split_at(at);
            rest = after;
            return Some(Ok(Piece::Text(plain)));
        }
        if let Some(after) = rest.strip_prefix("%%") {
            rest = after;
            return Some(Ok(Piece::Percent));
        }
        match clause(&rest[1..]) {
            Ok((clause, length)) => {
                rest = &rest[1 + length..];
                Some(Ok(Piece::Clause(clause)))
            }
            Err(reason) => {
                rest = "";
                Some(Err(reason))
            }
        }
    })
}

fn clause(text: &str) -> Result<(Clause, usize), String> {
    if text.is_empty() {
        return Err("unexpected end of string".to_owned());
    }
    let unparsed = |reason: String| format!("could not parse formatting clause: {reason}");
    let mut length = 0;
    let mut precision = None;
    if let Some(after) = text.strip_prefix('.') {
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        length = 1 + digits;
        if length == text.len() {
            let reason = "error while parsing precision: could not find end of precision specifier";
            return Err(unparsed(reason.to_owned()));
        }
        let number: Option<usize> = after[..digits].parse().ok();
        precision = Some(number.filter(|number| *number <= PRECISION_MAX).ok_or_else(|| {
            unparsed("error while parsing precision: error while converting precision to integer".to_owned())
        })?);
    }
    let letter = text[length..].chars().next().unwrap_or_default();
    if !"sdfebxXo".contains(letter) {
        return Err(unparsed(format!("unrecognized formatting clause \"{letter}\"")));
    }
    Ok((Clause { letter, precision }, length + letter.len_utf8()))
}

fn refuse(letter: char, ty: &Type) -> String {
    let name = ty.runtime_name();
    match letter {
        'b' => format!("only integers and bools can be formatted as binary, was given {name}"),
        'd' => format!("decimal clause can only be used on integers, was given {name}"),
        'f' => format!("fixed-point clause can only be used on doubles, was given {name}"),
        'e' => format!("scientific clause can only be used on doubles, was given {name}"),
        'x' | 'X' => {
            format!("only integers, byte buffers, and strings can be formatted as hex, was given {name}")
        }
        'o' => format!("octal clause can only be used on integers, was given {name}"),
        _ => format!(
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, \
             durations, and timestamps, was given {name}"
        ),
    }
}

/// Checks a literal format string against the types of its arguments. The error has the index of the argument (`None`
/// for the call itself) and a message.
pub(crate) fn check_types(text: &str, types: &[&Type]) -> Result<(), (Option<usize>, String)> {
    let mut index = 0;
    for piece in pieces(text) {
        let Piece::Clause(clause) = piece.map_err(|reason| (None, reason))? else { continue };
        let Some(ty) = types.get(index) else { return Err((None, format!("index {index} out of range"))) };
        if !is_formattable(clause.letter, ty) {
            let reason = refuse(clause.letter, ty);
            return Err((Some(index), format!("error during formatting: {reason}")));
        }
        index += 1;
    }
    if index < types.len() {
        let given = types.len();
        let text = format!("too many arguments supplied to string.format (expected {index}, got {given})");
        return Err((None, text));
    }
    Ok(())
}

fn is_formattable(letter: char, ty: &Type) -> bool {
    match (letter, ty) {
        (_, Type::Dyn) => true,
        ('d' | 'o', Type::Int | Type::Uint) => true,
        ('b', Type::Int | Type::Uint | Type::Bool) => true,
        ('x' | 'X', Type::Int | Type::Uint | Type::String | Type::Bytes) => true,
        // Infinity and NaN may be given as strings.
        ('f' | 'e', Type::Double | Type::String) => true,
        ('s', ty) => matches!(
            ty,
            Type::List(_)
                | Type::Map(..)
                | Type::Int
                | Type::Uint
                | Type::Double
                | Type::Bool
                | Type::String
                | Type::Timestamp
                | Type::Bytes
                | Type::Duration
                | Type::Type(_)
                | Type::Null
        ),
        _ => false,
    }
}

fn show(clause: Clause, value: &Value<'_>, style: Style) -> Result<String, EvalError> {
    let precision = clause.precision.unwrap_or(PRECISION);
    Ok(match (clause.letter, value) {
        ('s', value) => shown_plainly(value)?,
        ('d', Value::Int(value)) => value.to_string(),
        ('d', Value::Uint(value)) => value.to_string(),
        ('b', Value::Bool(value)) => if *value { "1" } else { "0" }.to_owned(),
        ('b', Value::Int(value)) => signed(*value, |magnitude| format!("{magnitude:b}")),
        ('b', Value::Uint(value)) => format!("{value:b}"),
        ('o', Value::Int(value)) => signed(*value, |magnitude| format!("{magnitude:o}")),
        ('o', Value::Uint(value)) => format!("{value:o}"),
        ('x', Value::Int(value)) => signed(*value, |magnitude| format!("{magnitude:x}")),
        ('X', Value::Int(value)) => signed(*value, |magnitude| format!("{magnitude:X}")),
        ('x', Value::Uint(value)) => format!("{value:x}"),
        ('X', Value::Uint(value)) => format!("{value:X}"),
        ('x' | 'X', Value::String(text)) => hex(text.as_bytes(), clause.letter),
        ('x' | 'X', Value::Bytes(bytes)) => hex(bytes, clause.letter),
        ('f', Value::Double(value)) => fixed(*value, precision, style),
        ('e', Value::Double(value)) => exponential(*value, precision, style),
        ('f' | 'e', Value::String(text)) if matches!(&**text, "NaN" | "Infinity" | "-Infinity") => {
            match (&**text, style) {
                ("Infinity", Style::Local) => "∞".to_owned(),
                ("-Infinity", Style::Local) => "-∞".to_owned(),
                (text, _) => text.to_owned(),
            }
        }
        (letter, value) => return Err(EvalError::Failed(refuse(letter, &value.type_of()))),
    })
}

fn signed(value: i64, digits: fn(u64) -> String) -> String {
    let sign = if value < 0 { "-" } else { "" };
    format!("{sign}{}", digits(value.unsigned_abs()))
}

fn hex(bytes: &[u8], letter: char) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = if letter == 'x' { write!(text, "{byte:02x}") } else { write!(text, "{byte:02X}") };
    }
    text
}

fn not_finite(value: f64, style: Style) -> Option<String> {
    let infinity = if style == Style::Local { "∞" } else { "Infinity" };
    if value.is_nan() {
        return Some("NaN".to_owned());
    }
    value.is_infinite().then(|| format!("{}{infinity}", if value < 0.0 { "-" } else { "" }))
}

fn fixed(value: f64, precision: usize, style: Style) -> String {
    if let Some(text) = not_finite(value, style) {
        return text;
    }
    let text = format!("{value:.precision$}");
    if style == Style::Plain {
        return text;
    }
    let (sign, text) = text.strip_prefix('-').map_or(("", text.as_str()), |rest| ("-", rest));
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut grouped = String::from(sign);
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if !fraction.is_empty() {
        grouped.push('.');
        grouped.push_str(fraction);
    }
    grouped
}

fn exponential(value: f64, precision: usize, style: Style) -> String {
    if let Some(text) = not_finite(value, style) {
        return text;
    }
    if style == Style::Plain {
        return scientific(&format!("{value:.precision$e}"));
    }
    // The pinned version takes the precision for a width; six places are printed whatever it says.
    let text = scientific(&format!("{value:.PRECISION$e}"));
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    let superscript = |c: char| match c {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        '4' => '⁴',
        '5' => '⁵',
        '6' => '⁶',
        '7' => '⁷',
        '8' => '⁸',
        '9' => '⁹',
        _ => '⁰',
    };
    let exponent: String = exponent.trim_start_matches('+').chars().map(superscript).collect();
    format!("{mantissa}×10{exponent}")
}

/// `%s`: strings as they are, collections as CEL would write them.
fn shown_plainly(value: &Value<'_>) -> Result<String, EvalError> {
    match value {
        Value::List(list) => show_list(list),
        Value::Map(map) => show_map(map),
        Value::Bytes(bytes) => std::str::from_utf8(bytes)
            .map(str::to_owned)
            .map_err(|_| EvalError::failed("could not convert argument to string")),
        Value::Optional(_) | Value::Message(_) | Value::Opaque(_) => {
            Err(EvalError::Failed(refuse('s', &value.type_of())))
        }
        other => Ok(other.to_string()),
    }
}

/// As an element of a list or map.
fn show_element(value: &Value<'_>) -> Result<String, EvalError> {
    Ok(match value {
        Value::String(text) => quote(text),
        Value::Bytes(bytes) => format!("b{}", quote(&String::from_utf8_lossy(bytes))),
        Value::Timestamp(time) => format!("timestamp(\"{time}\")"),
        Value::Duration(duration) => format!("duration(\"{duration}\")"),
        Value::Double(value) => match not_finite(*value, Style::Plain) {
            Some(text) => quote(&text),
            None => format!("{value:.PRECISION$}"),
        },
        other => shown_plainly(other)?,
    })
}

fn show_list(list: &List<'_>) -> Result<String, EvalError> {
    let mut out = String::from("[");
    for (index, item) in list.iter().enumerate() {
        let shown = show_element(&item?)?;
        limit_bytes("format", out.len() + shown.len())?;
        out.push_str(if index > 0 { ", " } else { "" });
        out.push_str(&shown);
    }
    out.push(']');
    Ok(out)
}

fn show_map(map: &Map<'_>) -> Result<String, EvalError> {
    let mut entries = Vec::new();
    let mut bytes = 0;
    for (key, value) in map.entries()? {
        let key = match key {
            Key::String(text) => quote(&text),
            other => other.to_string(),
        };
        let entry = format!("{key}:{}", show_element(&value)?);
        bytes += entry.len();
        limit_bytes("format", bytes)?;
        entries.push(entry);
    }
    entries.sort();
    Ok(format!("{{{}}}", entries.join(", ")))
}
