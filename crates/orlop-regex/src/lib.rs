//! Regular expressions in Go's dialect (RE2), on the `regex` crate.
//!
//! ```
//! let digits = orlop_regex::compile(r"^\d+$", orlop_regex::COMPILED_BYTES_MAX)?;
//! assert!(digits.is_match("12") && !digits.is_match("١٢"));
//! let mistake = orlop_regex::compile("a(b", orlop_regex::COMPILED_BYTES_MAX).unwrap_err();
//! assert_eq!(mistake, "error parsing regexp: missing closing ): `a(b`");
//! # Ok::<(), String>(())
//! ```
//!
//! The two engines share their syntax but for details, which [`translate`] removes: in RE2 `\d`, `\w`, `\s` and `\b`
//! are about ASCII, a class knows no set operations or nesting, `\Q…\E` quotes, and `\<` is just `<`. Back references
//! and look-around exist in neither, so every pattern runs in linear time. Mistakes are told in Go's words where it is
//! plain which they are, because those texts reach users.

mod mistakes;

pub use regex::Regex;

/// A compiled pattern larger than this is refused.
pub const COMPILED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Compiles a pattern that may take so many bytes.
pub fn compile(pattern: &str, bytes_max: usize) -> Result<Regex, String> {
    if let Some(mistake) = mistakes::refused(pattern) {
        return Err(mistake);
    }
    let translated = translate(pattern);
    let built = regex::RegexBuilder::new(&translated).size_limit(bytes_max).build();
    built.map_err(|error| mistakes::told(&error, pattern))
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
            // A brace that counts nothing is a brace.
            '{' if !in_class && mistakes::repetition(rest).is_none() => out.push_str("\\{"),
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
            (r"^a{1,1000}?$", "aa", true),
            (r"^(?:a+)+$", "aa", true),
            (r"^a\**$", "a**", true),
            (r"^[*+?{}]+$", "*+", true),
            (r"^\Qa**\E$", "a**", true),
            (r"^a{,2}$", "a{,2}", true),
            (r"^{[a-z]+}$", "{ab}", true),
            (r"^[\p{Lu}\x{61}]{2}$", "Éa", true),
        ] {
            let regex = compile(pattern, COMPILED_BYTES_MAX).unwrap();
            assert_eq!(regex.is_match(text), expected, "{pattern} on {text}");
        }
        for pattern in ["(", "*a", r"\1", "(?=a)", "[", "\\"] {
            assert!(compile(pattern, COMPILED_BYTES_MAX).is_err(), "{pattern}");
        }
    }

    #[test]
    fn mistakes_are_told_as_go_tells_them() {
        for (pattern, expected) in [
            ("(", "missing closing ): `(`"),
            ("a(b", "missing closing ): `a(b`"),
            ("a)", "unexpected ): `a)`"),
            ("[", "missing closing ]: `[`"),
            ("a[bc", "missing closing ]: `[bc`"),
            ("*a", "missing argument to repetition operator: `*`"),
            ("a|+", "missing argument to repetition operator: `+`"),
            ("\\", "trailing backslash at end of expression: ``"),
            (r"a\1", r"invalid escape sequence: `\1`"),
            (r"\y", r"invalid escape sequence: `\y`"),
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("(?<!a)", "invalid or unsupported Perl syntax: `(?<`"),
            ("[z-a]", "invalid character class range: `z-a`"),
            ("a{3,2}", "invalid repeat count: `{3,2}`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("^.{0,2048}$", "invalid repeat count: `{0,2048}`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("a*?+b", "invalid nested repetition operator: `*?+`"),
            ("(ab){2}{3}", "invalid nested repetition operator: `{2}{3}`"),
        ] {
            let found = compile(pattern, COMPILED_BYTES_MAX).unwrap_err();
            assert_eq!(found, format!("error parsing regexp: {expected}"), "{pattern}");
        }
        assert!(compile("(((a{1000}){1000}){1000})", COMPILED_BYTES_MAX).is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_pattern_compiles_or_fails(pattern in r"[\[\](){}|*+?^$.\\a-dQEswdpL0-9&~:<>=!é-]{0,16}", text in "[a-d0-9é ]{0,8}") {
            if let Ok(regex) = compile(&pattern, COMPILED_BYTES_MAX) {
                let _ = regex.is_match(&text);
            }
        }
    }
}
