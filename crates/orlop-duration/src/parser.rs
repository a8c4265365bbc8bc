//! The parser: an optional sign, then numbers with units.

use crate::ParseError;

/// Go's units in nanoseconds. The micro sign and the Greek letter mu both stand for micro.
const UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Magnitude of the shortest duration, `i64::MIN` nanoseconds.
const MAGNITUDE_MAX: u64 = 1 << 63;

/// Parses a duration to nanoseconds.
pub fn parse(text: &str) -> Result<i64, ParseError> {
    let invalid = || ParseError::Invalid(text.to_owned());
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut magnitude = 0_u64;
    while !rest.is_empty() {
        let (whole, fraction, after) = split_number(rest).ok_or_else(invalid)?;
        let (unit, after) = after.split_at(after.find(is_of_number).unwrap_or(after.len()));
        if unit.is_empty() {
            return Err(ParseError::MissingUnit(text.to_owned()));
        }
        let nanoseconds = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, nanoseconds)| *nanoseconds);
        let nanoseconds = nanoseconds
            .ok_or_else(|| ParseError::UnknownUnit { unit: unit.to_owned(), text: text.to_owned() })?;
        magnitude = multiply(whole, fraction, nanoseconds)
            .and_then(|part| magnitude.checked_add(part))
            .filter(|magnitude| *magnitude <= MAGNITUDE_MAX)
            .ok_or_else(invalid)?;
        rest = after;
    }
    let signed = if negative { 0_i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() };
    signed.ok_or_else(invalid)
}

fn is_of_number(character: char) -> bool {
    character.is_ascii_digit() || character == '.'
}

/// Splits the digits before and after the decimal point from the rest. One of the two may be empty.
fn split_number(text: &str) -> Option<(&str, &str, &str)> {
    let (whole, rest) = split_digits(text);
    let (fraction, rest) = rest.strip_prefix('.').map_or(("", rest), split_digits);
    (!whole.is_empty() || !fraction.is_empty()).then_some((whole, fraction, rest))
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len()))
}

/// Multiplies a decimal number with a unit. What is below a nanosecond is dropped.
fn multiply(whole: &str, fraction: &str, unit: u64) -> Option<u64> {
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut nanoseconds = whole.checked_mul(unit)?;
    let (mut digits, mut scale) = (0_u128, 1_u128);
    // The longest unit has 13 decimal digits: those that follow are less than a nanosecond together.
    for digit in fraction.bytes().take(13) {
        digits = digits * 10 + u128::from(digit - b'0');
        scale *= 10;
    }
    let part = digits * u128::from(unit) / scale;
    nanoseconds = nanoseconds.checked_add(u64::try_from(part).ok()?)?;
    Some(nanoseconds)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_parse_and_format_as_in_go() {
        for (text, nanoseconds, formatted) in [
            ("5m", 300_000_000_000, "5m0s"),
            ("1h30m", 5_400_000_000_000, "1h30m0s"),
            ("1.5s", 1_500_000_000, "1.5s"),
            (".5s", 500_000_000, "500ms"),
            ("1.s", 1_000_000_000, "1s"),
            ("300ms", 300_000_000, "300ms"),
            ("-2s", -2_000_000_000, "-2s"),
            ("+2s", 2_000_000_000, "2s"),
            ("10us", 10_000, "10\u{b5}s"),
            ("10\u{3bc}s", 10_000, "10\u{b5}s"),
            ("0", 0, "0s"),
            ("-0", 0, "0s"),
            ("0.3333333333333333333h", 1_199_999_999_999, "19m59.999999999s"),
            ("9223372036854775807ns", i64::MAX, "2562047h47m16.854775807s"),
            ("-9223372036854775808ns", i64::MIN, "-2562047h47m16.854775808s"),
        ] {
            assert_eq!(parse(text), Ok(nanoseconds), "{text}");
            assert_eq!(crate::format(nanoseconds), formatted);
        }
    }

    #[test]
    fn errors_match_go() {
        for (text, expected) in [
            ("", r#"invalid duration """#),
            ("-", r#"invalid duration "-""#),
            ("--1s", r#"invalid duration "--1s""#),
            (".s", r#"invalid duration ".s""#),
            ("1.2.3s", r#"missing unit in duration "1.2.3s""#),
            ("5", r#"missing unit in duration "5""#),
            ("5x", r#"unknown unit "x" in duration "5x""#),
            ("5d\u{e9}\"", r#"unknown unit "d\xc3\xa9\"" in duration "5d\xc3\xa9\"""#),
            ("9223372036854775808ns", r#"invalid duration "9223372036854775808ns""#),
            ("2562048h", r#"invalid duration "2562048h""#),
            ("18000000000000000000ns1h", r#"invalid duration "18000000000000000000ns1h""#),
        ] {
            assert_eq!(parse(text).map_err(|error| error.to_string()), Err(expected.to_owned()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn formatted_durations_parse_to_themselves(nanoseconds: i64) {
            prop_assert_eq!(parse(&crate::format(nanoseconds)), Ok(nanoseconds));
        }

        #[test]
        fn no_text_panics(text in "[-+0-9.hmsnu\u{b5}]{0,40}") {
            let _ = parse(&text);
        }
    }
}
