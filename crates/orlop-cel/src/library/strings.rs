//! Functions on strings. Positions count Unicode characters.

use crate::error::EvalError;
use crate::functions::{CallContext, EvalResult, Functions};
use crate::library::{format, limit_bytes, limit_elements};
use crate::types::Type;
use crate::value::{Text, Value};

pub(crate) fn declare(f: &mut Functions, version: u32) {
    let (s, i) = (|| Type::String, || Type::Int);
    let list = || Type::list(Type::String);
    f.member("charAt", "string_char_at_int", [s(), i()], s(), char_at);
    f.member("indexOf", "string_index_of_string", [s(), s()], i(), index_of);
    f.member("indexOf", "string_index_of_string_int", [s(), s(), i()], i(), index_of);
    f.member("lastIndexOf", "string_last_index_of_string", [s(), s()], i(), last_index_of);
    f.member("lastIndexOf", "string_last_index_of_string_int", [s(), s(), i()], i(), last_index_of);
    f.member("lowerAscii", "string_lower_ascii", [s()], s(), |_, args| {
        map_text(args, str::to_ascii_lowercase)
    });
    f.member("upperAscii", "string_upper_ascii", [s()], s(), |_, args| {
        map_text(args, str::to_ascii_uppercase)
    });
    f.member("trim", "string_trim", [s()], s(), |_, args| map_text(args, |text| text.trim().to_owned()));
    f.member("replace", "string_replace_string_string", [s(), s(), s()], s(), replace);
    f.member("replace", "string_replace_string_string_int", [s(), s(), s(), i()], s(), replace);
    f.member("split", "string_split_string", [s(), s()], list(), split);
    f.member("split", "string_split_string_int", [s(), s(), i()], list(), split);
    f.member("substring", "string_substring_int", [s(), i()], s(), substring);
    f.member("substring", "string_substring_int_int", [s(), i(), i()], s(), substring);
    f.member("join", "list_join", [list()], s(), join);
    f.member("join", "list_join_string", [list(), s()], s(), join);
    if version >= 1 {
        let run = if version >= 4 { format::format_plain } else { format::format_local };
        f.member("format", "string_format", [s(), Type::list(Type::Dyn)], s(), run);
        f.global("strings.quote", "strings_quote", [s()], s(), |_, args| map_text(args, quote));
    }
    if version >= 3 {
        f.member("reverse", "string_reverse", [s()], s(), |_, args| {
            map_text(args, |text| text.chars().rev().collect())
        });
    }
}

fn map_text<'a>(args: &[Value<'a>], map: fn(&str) -> String) -> EvalResult<'a> {
    match args {
        [Value::String(text)] => Ok(Value::String(Text::from(map(text)))),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn out_of_range(index: i64) -> EvalError {
    EvalError::Failed(format!("index out of range: {index}"))
}

fn char_at<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    let [Value::String(text), Value::Int(index)] = args else { return Err(EvalError::no_such_overload()) };
    let at = usize::try_from(*index).map_err(|_| out_of_range(*index))?;
    match text.chars().nth(at) {
        Some(c) => Ok(Value::string(c.encode_utf8(&mut [0; 4]))),
        // The position after the last character is the empty string.
        None if text.chars().count() == at => Ok(Value::borrowed("")),
        None => Err(out_of_range(*index)),
    }
}

/// The byte offset of a character position; `None` beyond the end.
fn byte_offset(text: &str, position: usize) -> Option<usize> {
    text.char_indices().map(|(at, _)| at).chain([text.len()]).nth(position)
}

fn position(text: &str, byte: usize) -> i64 {
    text[..byte].chars().count() as i64
}

fn index_of<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    let (text, part, from) = match args {
        [Value::String(text), Value::String(part)] => (text, part, 0),
        [Value::String(text), Value::String(part), Value::Int(from)] => (text, part, *from),
        _ => return Err(EvalError::no_such_overload()),
    };
    let start = usize::try_from(from).map_err(|_| out_of_range(from))?;
    let Some(start) = byte_offset(text, start) else {
        // Beyond the end only the empty string is found, at the end.
        return Ok(Value::Int(if part.is_empty() { position(text, text.len()) } else { -1 }));
    };
    let found = text[start..].find(&**part).map(|at| position(text, start + at));
    Ok(Value::Int(found.unwrap_or(-1)))
}

fn last_index_of<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    let (text, part, from) = match args {
        [Value::String(text), Value::String(part)] => (text, part, None),
        [Value::String(text), Value::String(part), Value::Int(from)] => (text, part, Some(*from)),
        _ => return Err(EvalError::no_such_overload()),
    };
    let length = text.chars().count();
    let limit = match from {
        None => length,
        Some(from) => match usize::try_from(from).map_err(|_| out_of_range(from))? {
            from if from >= length && !part.is_empty() => return Ok(Value::Int(-1)),
            from => from,
        },
    };
    // A match may begin at the limit and reach beyond it; of those that overlap, the last one counts.
    let limit = byte_offset(text, limit).unwrap_or(text.len());
    let end = text.len().min(limit + part.len());
    let end = (end..=text.len()).find(|end| text.is_char_boundary(*end)).unwrap_or(text.len());
    let begins = |at: &usize| *at <= limit;
    let mut before = &text[..end];
    let found = loop {
        let Some(at) = before.rfind(&**part) else { break None };
        if begins(&at) {
            break Some(position(text, at));
        }
        // It begins beyond the limit: whatever is found next ends before it does.
        let shorter = before.len().saturating_sub(1);
        before = &before[..(0..=shorter).rev().find(|end| before.is_char_boundary(*end)).unwrap_or(0)];
    };
    Ok(Value::Int(found.unwrap_or(-1)))
}

fn replace<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    let (text, old, new, count) = match args {
        [Value::String(text), Value::String(old), Value::String(new)] => (text, old, new, usize::MAX),
        [Value::String(text), Value::String(old), Value::String(new), Value::Int(count)] => {
            // A negative count means all.
            (text, old, new, usize::try_from(*count).unwrap_or(usize::MAX))
        }
        _ => return Err(EvalError::no_such_overload()),
    };
    let replaced = text.matches(&**old).take(count).count();
    limit_bytes("replace", text.len().saturating_add(replaced.saturating_mul(new.len())))?;
    Ok(Value::string(text.replacen(&**old, new, count)))
}

fn split<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    let (text, separator, count) = match args {
        [Value::String(text), Value::String(separator)] => (text, separator, None),
        [Value::String(text), Value::String(separator), Value::Int(count)] => {
            (text, separator, usize::try_from(*count).ok())
        }
        _ => return Err(EvalError::no_such_overload()),
    };
    let limit = count.unwrap_or(usize::MAX);
    let most = if separator.is_empty() { text.len() } else { text.matches(&**separator).count() };
    limit_elements("split", most.min(limit))?;
    let parts: Vec<&str> = if limit == 0 {
        Vec::new()
    } else if separator.is_empty() {
        split_characters(text, limit)
    } else {
        text.splitn(limit, &**separator).collect()
    };
    Ok(Value::list(parts.into_iter().map(Value::string).collect()))
}

/// One part per character, the last holding the rest.
fn split_characters(text: &str, limit: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if parts.len() + 1 == limit {
            parts.push(rest);
            break;
        }
        let (character, after) = rest.split_at(first.len_utf8());
        parts.push(character);
        rest = after;
    }
    parts
}

fn substring<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    let (text, start, end) = match args {
        [Value::String(text), Value::Int(start)] => (text, *start, None),
        [Value::String(text), Value::Int(start), Value::Int(end)] => (text, *start, Some(*end)),
        _ => return Err(EvalError::no_such_overload()),
    };
    if let Some(end) = end.filter(|end| start > *end) {
        return Err(EvalError::Failed(format!("invalid substring range. start: {start}, end: {end}")));
    }
    let offset = |position: i64| {
        let at = usize::try_from(position).ok().and_then(|position| byte_offset(text, position));
        at.ok_or_else(|| out_of_range(position))
    };
    let from = offset(start)?;
    let to = end.map_or(Ok(text.len()), offset)?;
    Ok(Value::string(&text[from..to]))
}

fn join<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    let (list, separator) = match args {
        [Value::List(list)] => (list, ""),
        [Value::List(list), Value::String(separator)] => (list, &**separator),
        _ => return Err(EvalError::no_such_overload()),
    };
    let mut joined = String::new();
    for (index, item) in list.iter().enumerate() {
        let Value::String(text) = item? else { return Err(EvalError::no_such_overload()) };
        if index > 0 {
            joined.push_str(separator);
        }
        limit_bytes("join", joined.len() + text.len())?;
        joined.push_str(&text);
    }
    Ok(Value::string(joined))
}

/// The text as a CEL literal.
fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
