//! Translation of RE2 syntax into the syntax of the `regex` crate.
//!
//! In RE2 `\d`, `\w`, `\s` and `\b` match ASCII only, classes have neither set operations nor nesting, `\Q…\E` quotes,
//! and `\<` is a literal.

use crate::syntax_error;

/// Translates a pattern of RE2 into the syntax of the `regex` crate.
pub(crate) fn translate(pattern: &str) -> String {
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
            // Doubled, the regex crate reads these as set operations.
            '&' | '~' if in_class => {
                out.push('\\');
                out.push(c);
            }
            '-' if in_class && rest.starts_with("--") => out.push_str("\\-"),
            // RE2 reads a brace without a count as a literal.
            '{' if !in_class && syntax_error::repetition(rest).is_none() => out.push_str("\\{"),
            c => out.push(c),
        }
        rest = &rest[taken..];
    }
    out
}

/// Copies the opening of a class. A `]` directly after it is a literal.
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

/// Returns the POSIX class, such as `[:alpha:]`, at the start of `rest`.
fn posix_class(rest: &str) -> Option<&str> {
    if !rest.starts_with("[:") {
        return None;
    }
    rest.find(":]").map(|end| &rest[..end + 2])
}

/// Translates the escape sequence at the start of `rest` and returns its length.
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
        'p' | 'P' | 'x' if rest[2..].starts_with('{') => {
            let end = rest.find('}').map_or(rest.len(), |end| end + 1);
            out.push_str(&rest[..end]);
            return end;
        }
        _ => {
            out.push('\\');
            out.push(letter);
        }
    }
    1 + letter.len_utf8()
}
