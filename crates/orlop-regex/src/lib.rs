//! Regular expressions in Go's dialect (RE2), on the `regex` crate.
//!
//! ```
//! let digits = orlop_regex::compile(r"^\d+$", orlop_regex::COMPILED_BYTES_MAX)?;
//! assert!(digits.is_match("12") && !digits.is_match("١٢"));
//! let error = orlop_regex::compile("a(b", orlop_regex::COMPILED_BYTES_MAX).unwrap_err();
//! assert_eq!(error, "error parsing regexp: missing closing ): `a(b`");
//! # Ok::<(), String>(())
//! ```
//!
//! Both engines run in linear time: neither has back references or look-around. [`dialect`] translates the syntax
//! where the two differ. Error texts are Go's, because they reach users.
//!
//! - [`compile`] compiles a pattern.
//! - [`validate`] checks a pattern without compiling it, unless its size is close to the limit.
//! - [`cached`] returns a compiled pattern from a process-wide cache with a memory budget.

mod cache;
mod dialect;
pub mod go_quote;
mod syntax_error;
mod validate;

pub use cache::{CACHE_BYTES_MAX, CachedRegex, RegexCache, cached, cached_bytes};
pub use regex::Regex;
pub use validate::{ValidationBudget, validate};

/// Limit on the size of a compiled pattern.
pub const COMPILED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Compiles a pattern of at most `bytes_max` compiled bytes.
pub fn compile(pattern: &str, bytes_max: usize) -> Result<Regex, String> {
    let translated = dialect::translate(pattern);
    validate::parse(pattern, &translated)?;
    let built = regex::RegexBuilder::new(&translated).size_limit(bytes_max).build();
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => syntax_error::too_large(pattern),
        error => syntax_error::to_go(&error.to_string(), pattern),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_re2() {
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
            (r"^((a{100}){10})*$", "", true),
        ] {
            let regex = compile(pattern, COMPILED_BYTES_MAX).unwrap();
            assert_eq!(regex.is_match(text), expected, "{pattern} on {text}");
        }
        for pattern in ["(", "*a", r"\1", "(?=a)", "[", "\\"] {
            assert!(compile(pattern, COMPILED_BYTES_MAX).is_err(), "{pattern}");
        }
    }

    #[test]
    fn syntax_errors_match_go() {
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
            ("((a{100}){10}){2}", "invalid repeat count: `{2}`"),
            ("(((a{1000}){1000}){1000})", "invalid repeat count: `{1000}`"),
            ("(a{2,}){501}", "invalid repeat count: `{501}`"),
        ] {
            let found = compile(pattern, COMPILED_BYTES_MAX).unwrap_err();
            assert_eq!(found, format!("error parsing regexp: {expected}"), "{pattern}");
        }
    }

    #[test]
    fn validation_refuses_oversized_patterns_within_its_budget() {
        let mut budget = ValidationBudget::default();
        assert_eq!(validate(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", &mut budget), Ok(()));
        assert!(validate(r"\p{Nope}", &mut budget).is_err());
        assert_eq!(
            validate(r"\p{L}{1000}", &mut budget).unwrap_err(),
            r"error parsing regexp: expression too large: `\p{L}{1000}`"
        );
        // Close to the limit only compilation decides, and a definition may ask for little of that.
        let close = format!("^{}$", ".{1000}".repeat(9));
        let refused = (0..600).filter(|_| validate(&close, &mut budget).is_err()).count();
        assert!(refused > 550, "{refused}");
    }

    #[test]
    fn a_budget_covers_many_small_patterns() {
        let mut budget = ValidationBudget::default();
        for number in 0..25_000 {
            assert_eq!(validate(&format!("^[a-z]{{1,20}}-{number}$"), &mut budget), Ok(()));
        }
    }

    proptest::proptest! {
        #[test]
        fn validation_agrees_with_compilation(pattern in r"[\[\](){}|*+?^$.\\a-dQEswdpL0-9&~:<>=!é-]{0,16}", text in "[a-d0-9é ]{0,8}") {
            if let Ok(regex) = compile(&pattern, COMPILED_BYTES_MAX) {
                let _ = regex.is_match(&text);
            }
            // Whatever compiles passes validation, and the other way round.
            let valid = validate(&pattern, &mut ValidationBudget::default()).is_ok();
            proptest::prop_assert_eq!(valid, compile(&pattern, COMPILED_BYTES_MAX).is_ok());
        }
    }
}
