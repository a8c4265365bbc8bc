//! Field names of Kubernetes objects as CEL identifiers and back.
//!
//! `.`, `-`, `/` and `__` are not allowed in identifiers and become `__dot__`, `__dash__`, `__slash__` and
//! `__underscores__`; a name that is a reserved word becomes `__word__`. Names with any other character have no
//! identifier and are not visible to expressions.

use crate::parser::RESERVED;

/// Returns whether a word is reserved.
pub fn is_reserved(word: &str) -> bool {
    RESERVED.contains(&word) || ["true", "false", "null", "in"].contains(&word)
}

/// The identifier for a field name, if it has one.
pub fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if is_reserved(name) {
        return Some(format!("__{name}__"));
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        let taken = if rest.starts_with("__") {
            out.push_str("__underscores__");
            2
        } else {
            match c {
                '.' => out.push_str("__dot__"),
                '-' => out.push_str("__dash__"),
                '/' => out.push_str("__slash__"),
                c if c.is_ascii_alphanumeric() || c == '_' => out.push(c),
                _ => return None,
            }
            1
        };
        rest = &rest[taken..];
    }
    Some(out)
}

/// The field name behind an identifier; `None` if the identifier holds an escape that does not exist.
pub fn unescape(identifier: &str) -> Option<String> {
    let mut out = String::with_capacity(identifier.len());
    let mut rest = identifier;
    while let Some(start) = rest.find("__") {
        let Some(word) = escape_word(&rest[start + 2..]) else {
            // Two underscores that begin no escape are themselves, one at a time.
            out.push_str(&rest[..=start]);
            rest = &rest[start + 1..];
            continue;
        };
        out.push_str(&rest[..start]);
        match word {
            "underscores" => out.push_str("__"),
            "dot" => out.push('.'),
            "dash" => out.push('-'),
            "slash" => out.push('/'),
            word if is_reserved(word) && identifier.len() == word.len() + 4 => out.push_str(word),
            _ => return None,
        }
        rest = &rest[start + 2 + word.len() + 2..];
    }
    out.push_str(rest);
    Some(out)
}

/// The word before the next `__`, if there is one and it holds no underscore itself.
fn escape_word(text: &str) -> Option<&str> {
    let end = text.find('_').filter(|end| *end > 0)?;
    text[end..].starts_with("__").then(|| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_names_round_trip() {
        for (name, identifier) in [
            ("a", "a"),
            ("a.b", "a__dot__b"),
            ("a-b/c", "a__dash__b__slash__c"),
            ("__x", "__underscores__x"),
            ("x_y", "x_y"),
            ("namespace", "__namespace__"),
            ("if", "__if__"),
            ("int", "int"),
            ("./__-", "__dot____slash____underscores____dash__"),
            ("_x_", "_x_"),
        ] {
            assert_eq!(escape(name).as_deref(), Some(identifier), "{name}");
            assert_eq!(unescape(identifier).as_deref(), Some(name), "{identifier}");
        }
    }

    #[test]
    fn names_with_other_characters_are_not_escapable() {
        for name in ["", "1a", "a b", "é", "a$", "@"] {
            assert_eq!(escape(name), None, "{name}");
        }
        for identifier in ["__foo__", "a__if__", "__if__a"] {
            assert_eq!(unescape(identifier), None, "{identifier}");
        }
    }
}
