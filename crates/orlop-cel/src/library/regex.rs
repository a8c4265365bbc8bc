//! Regular expressions in RE2's dialect, on the `regex` crate.
//!
//! The two engines share their syntax but for details, which [`translate`] removes: in RE2 `\d`, `\w`, `\s` and `\b`
//! are about ASCII, a class knows no set operations or nesting, `\Q…\E` quotes, and `\<` is just `<`. Back references
//! and look-around exist in neither, so every pattern runs in linear time. Patterns that are constants are compiled
//! with the program.

use std::borrow::Cow;

use regex::Regex;

use crate::error::EvalError;
use crate::functions::{CallContext, Functions, Outcome};
use crate::library::limit_elements;
use crate::types::Type;
use crate::value::Value;

/// A compiled pattern larger than this is refused.
const COMPILED_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The same for patterns that come with the data, which are compiled each time they are met.
const DYNAMIC_BYTES_MAX: usize = 512 * 1024;

pub(crate) fn declare(f: &mut Functions) {
    let text = || Type::String;
    f.member("find", "string_find_string", [text(), text()], text(), find);
    f.member("findAll", "string_find_all_string", [text(), text()], Type::list(text()), find_all);
    let limited = [text(), text(), Type::Int];
    f.member("findAll", "string_find_all_string_int", limited, Type::list(text()), find_all);
}

/// Compiles a pattern in RE2's dialect.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    compile_within(pattern, COMPILED_BYTES_MAX)
}

fn compile_within(pattern: &str, bytes_max: usize) -> Result<Regex, String> {
    regex::RegexBuilder::new(&translate(pattern)).size_limit(bytes_max).build().map_err(|error| {
        // The crate draws the pattern with a caret over several lines; the last one says what is wrong.
        let text = error.to_string();
        let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        format!("error parsing regexp: {reason}: `{pattern}`")
    })
}

fn compiled<'p>(context: CallContext<'p>, pattern: &str) -> Result<Cow<'p, Regex>, EvalError> {
    match context.regex {
        Some(regex) => Ok(Cow::Borrowed(regex)),
        None => compile_within(pattern, DYNAMIC_BYTES_MAX).map(Cow::Owned).map_err(EvalError::Failed),
    }
}

pub(crate) fn matches<'a>(context: CallContext<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::String(text), Value::String(pattern)] => {
            Ok(Value::Bool(compiled(context, pattern)?.is_match(text)))
        }
        _ => Err(EvalError::no_such_overload()),
    }
}

fn find<'a>(context: CallContext<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::String(text), Value::String(pattern)] => {
            let regex = illegal(compiled(context, pattern))?;
            Ok(Value::string(regex.find(text).map_or("", |found| found.as_str())))
        }
        _ => Err(EvalError::no_such_overload()),
    }
}

fn find_all<'a>(context: CallContext<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (text, pattern, limit) = match args {
        [Value::String(text), Value::String(pattern)] => (text, pattern, usize::MAX),
        [Value::String(text), Value::String(pattern), Value::Int(limit)] => {
            // A negative limit means all.
            (text, pattern, usize::try_from(*limit).unwrap_or(usize::MAX))
        }
        _ => return Err(EvalError::no_such_overload()),
    };
    let regex = illegal(compiled(context, pattern))?;
    let mut found = Vec::new();
    for part in regex.find_iter(text).take(limit) {
        limit_elements("findAll", found.len() + 1)?;
        found.push(Value::string(part.as_str()));
    }
    Ok(Value::list(found))
}

fn illegal<T>(result: Result<T, EvalError>) -> Result<T, EvalError> {
    result.map_err(|error| EvalError::Failed(format!("Illegal regex: {error}")))
}

/// The pattern in the dialect of the `regex` crate.
fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    let mut in_class = false;
    while let Some(c) = rest.chars().next() {
        let mut taken = c.len_utf8();
        match c {
            '\\' => taken = escape(rest, in_class, &mut out),
            '[' if !in_class => {
                in_class = true;
                taken = class_start(rest, &mut out);
            }
            '[' => match posix_class(rest) {
                Some(class) => {
                    out.push_str(class);
                    taken = class.len();
                }
                None => out.push_str("\\["),
            },
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            // Doubled, these would be set operations.
            '&' | '~' if in_class => {
                out.push('\\');
                out.push(c);
            }
            '-' if in_class && rest.starts_with("--") => out.push_str("\\-"),
            c => out.push(c),
        }
        rest = &rest[taken..];
    }
    out
}

/// Copies `[`, `[^` and a `]` directly after them, which is an ordinary character there.
fn class_start(rest: &str, out: &mut String) -> usize {
    let mut taken = 1;
    out.push('[');
    if rest[taken..].starts_with('^') {
        out.push('^');
        taken += 1;
    }
    if rest[taken..].starts_with(']') {
        out.push_str("\\]");
        taken += 1;
    }
    taken
}

/// `[:alpha:]` and the like.
fn posix_class(rest: &str) -> Option<&str> {
    if !rest.starts_with("[:") {
        return None;
    }
    rest.find(":]").map(|end| &rest[..end + 2])
}

/// Translates the escape at the start of `rest`; returns its length.
fn escape(rest: &str, in_class: bool, out: &mut String) -> usize {
    let Some(letter) = rest[1..].chars().next() else {
        out.push('\\');
        return 1;
    };
    let plain = match letter {
        'd' => "0-9",
        'w' => "0-9A-Za-z_",
        's' => "\\t\\n\\f\\r ",
        'D' => "^0-9",
        'W' => "^0-9A-Za-z_",
        'S' => "^\\t\\n\\f\\r ",
        _ => "",
    };
    match letter {
        'd' | 'w' | 's' if in_class => out.push_str(plain),
        'd' | 'w' | 's' | 'D' | 'W' | 'S' => {
            out.push('[');
            out.push_str(plain);
            out.push(']');
        }
        'b' if !in_class => out.push_str("(?-u:\\b)"),
        'B' if !in_class => out.push_str("(?-u:\\B)"),
        '<' | '>' => out.push(letter),
        'Q' if !in_class => {
            let quoted = &rest[2..];
            let end = quoted.find("\\E").unwrap_or(quoted.len());
            out.push_str(&regex::escape(&quoted[..end]));
            return (2 + end + 2).min(rest.len());
        }
        _ => {
            out.push('\\');
            out.push(letter);
        }
    }
    1 + letter.len_utf8()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dialect_is_re2s() {
        for (pattern, text, expected) in [
            (r"^\d+$", "12", true),
            (r"^\d+$", "١٢", false),
            (r"^\w$", "é", false),
            (r"^\W$", "é", true),
            (r"^.$", "é", true),
            (r"^[\d\s]+$", "1 2", true),
            (r"^[^\d]$", "x", true),
            (r"^[\D]$", "1", false),
            (r"\bfoo\b", "a foo b", true),
            (r"^[[:alpha:]]+$", "ab", true),
            (r"^[a&&b]+$", "a&b", true),
            (r"^[]a]+$", "]a", true),
            (r"^[[a]+$", "[a", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\Qa.b\E$", "axb", false),
            (r"\<", "<", true),
            ("(?i)^STRASSE$", "strasse", true),
            (r"^\p{L}+$", "é", true),
            (r"a{2}", "aa", true),
        ] {
            let regex = compile(pattern).unwrap();
            assert_eq!(regex.is_match(text), expected, "{pattern} on {text}");
        }
        for pattern in ["(", "*a", r"\1", "(?=a)", "[", "\\"] {
            assert!(compile(pattern).is_err(), "{pattern}");
        }
    }
}
