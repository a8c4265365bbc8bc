//! Field selectors: conjunctions of equalities and inequalities.

use serde_json::Value;
use std::fmt;

/// `field=value` or `field!=value`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Term {
    pub field: String,
    pub equal: bool,
    pub value: String,
}

/// Field selector. The empty selector matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selector {
    pub terms: Vec<Term>,
}

/// Error of parsing a field selector; a 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidFieldSelector {
    #[error("invalid selector: '{selector}'; can't understand '{part}'")]
    Term { selector: String, part: String },
    #[error("invalid field selector: invalid escape sequence: {0}")]
    Escape(String),
    #[error("invalid field selector: unescaped character in value: {0}")]
    Unescaped(u32),
}

impl Selector {
    pub fn parse(text: &str) -> Result<Self, InvalidFieldSelector> {
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let Some((field, equal, value)) = split_term(part) else {
                return Err(InvalidFieldSelector::Term { selector: text.to_owned(), part: part.to_owned() });
            };
            terms.push(Term { field: field.to_owned(), equal, value: unescape(value)? });
        }
        Ok(Self { terms })
    }

    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    /// Returns whether the selector matches, reading fields with `field` (absent is empty).
    pub fn matches(&self, mut field: impl FnMut(&str) -> String) -> bool {
        self.terms.iter().all(|term| (field(&term.field) == term.value) == term.equal)
    }

    /// Returns whether the selector matches an object by dotted paths.
    pub fn matches_object(&self, object: &Value) -> bool {
        self.matches(|path| field_text(object, path))
    }

    /// Returns the required value of a field, if any: `metadata.name=x` selects a single object.
    pub fn requires(&self, field: &str) -> Option<&str> {
        self.terms.iter().find(|term| term.equal && term.field == field).map(|term| term.value.as_str())
    }
}

/// Returns the value at a dotted path as text; empty if absent.
pub fn field_text(object: &Value, path: &str) -> String {
    let found = path.split('.').try_fold(object, |value, key| value.get(key));
    match found {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(flag)) => flag.to_string(),
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    }
}

/// Splits at unescaped commas.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (index, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    let index = term.char_indices().find(|(index, c)| *c == '=' || term[*index..].starts_with("!="))?.0;
    let (field, rest) = term.split_at(index);
    let (operator, equal) = if rest.starts_with("!=") {
        ("!=", false)
    } else if rest.starts_with("==") {
        ("==", true)
    } else {
        ("=", true)
    };
    Some((field, equal, &rest[operator.len()..]))
}

fn unescape(text: &str) -> Result<String, InvalidFieldSelector> {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => out.push(escaped),
                Some(other) => return Err(InvalidFieldSelector::Escape(format!("\\{other}"))),
                None => return Err(InvalidFieldSelector::Escape("\\".to_owned())),
            },
            ',' | '=' => return Err(InvalidFieldSelector::Unescaped(character.into())),
            other => out.push(other),
        }
    }
    Ok(out)
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=")
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, term) in self.terms.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let operator = if term.equal { "=" } else { "!=" };
            write!(f, "{comma}{}{operator}{}", term.field, escape(&term.value))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn field_selectors_parse_print_and_match() {
        let object = json!({"metadata": {"name": "a,b=c"}, "spec": {"n": 1, "ok": true}});
        for (text, printed, matches) in [
            ("", "", true),
            ("spec.n=1", "spec.n=1", true),
            ("spec.n==1,spec.ok=true", "spec.n=1,spec.ok=true", true),
            ("spec.n!=1", "spec.n!=1", false),
            ("spec.absent=", "spec.absent=", true),
            (r"metadata.name=a\,b\=c", r"metadata.name=a\,b\=c", true),
        ] {
            let selector = Selector::parse(text).unwrap();
            assert_eq!(selector.to_string(), printed);
            assert_eq!(selector.matches_object(&object), matches, "{text}");
        }
        assert_eq!(Selector::parse("metadata.name=x").unwrap().requires("metadata.name"), Some("x"));
        assert_eq!(Selector::parse("metadata.name!=x").unwrap().requires("metadata.name"), None);
    }

    #[test]
    fn invalid_field_selectors_are_refused() {
        for (text, expected) in [
            ("a", "invalid selector: 'a'; can't understand 'a'"),
            (r"a=\x", r"invalid field selector: invalid escape sequence: \x"),
            ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        ] {
            assert_eq!(Selector::parse(text).unwrap_err().to_string(), expected);
        }
    }

    proptest! {
        #[test]
        fn parsed_field_selectors_round_trip(text in r".{0,40}") {
            if let Ok(selector) = Selector::parse(&text) {
                let mut sorted = selector.clone();
                sorted.terms.sort();
                let mut again = Selector::parse(&selector.to_string()).unwrap();
                again.terms.sort();
                prop_assert_eq!(again, sorted);
            }
        }
    }
}
