//! Numbers: conversions that must not lose anything, and how doubles are printed.

/// The integer part of a double, if it is an `int`.
pub(crate) fn double_to_int(value: f64) -> Option<i64> {
    // The bounds are exact doubles; the upper one is the first that does not fit.
    (value.is_finite() && value > -9_223_372_036_854_775_808.0 && value < 9_223_372_036_854_775_808.0)
        .then_some(value as i64)
}

/// The integer part of a double, if it is a `uint`.
pub(crate) fn double_to_uint(value: f64) -> Option<u64> {
    (value.is_finite() && (0.0..18_446_744_073_709_551_616.0).contains(&value)).then_some(value as u64)
}

/// The shortest decimal that reads back as the same double, in the manner of `%g`: exponents below -4 and from 6 on.
pub(crate) fn double_to_string(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-4..1e6).contains(&magnitude) {
        return scientific(&format!("{value:e}"));
    }
    format!("{value}")
}

/// `1.5e7` as `1.5e+07`.
pub(crate) fn scientific(text: &str) -> String {
    let Some((mantissa, exponent)) = text.split_once('e') else { return text.to_owned() };
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', exponent),
    };
    format!("{mantissa}e{sign}{digits:0>2}")
}
