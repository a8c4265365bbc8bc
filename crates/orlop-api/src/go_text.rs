//! Go's formatting of values.
//!
//! Kubernetes formats messages with `%q`, `%v` and `json.Marshal`; these
//! functions produce the same text.

pub use orlop_regex::go_quote::{is_printable, push_quoted, quote};
use serde_json::Value;

/// `json.Marshal`: compact, keys sorted, `<`, `>`, `&` and the two line separators escaped.
pub fn json(value: &Value) -> String {
    let plain = value.to_string();
    if !plain.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return plain;
    }
    let mut out = String::with_capacity(plain.len() + 16);
    for character in plain.chars() {
        match character {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            c => out.push(c),
        }
    }
    out
}

/// `%v` of an untyped value: `map[a:1 b:[x y]]`, strings bare, null `<nil>`.
pub fn display(value: &Value) -> String {
    let mut out = String::new();
    push_display(&mut out, value);
    out
}

fn push_display(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => out.push_str(&self::number(number)),
        Value::String(text) => out.push_str(text),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(' ');
                }
                push_display(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push_str("map[");
            for (index, (key, item)) in map.iter().enumerate() {
                if index > 0 {
                    out.push(' ');
                }
                out.push_str(key);
                out.push(':');
                push_display(out, item);
            }
            out.push(']');
        }
    }
}

/// Returns the name that Go's decoder has for a JSON value's type.
pub fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// `%T` of an untyped value.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// `reflect.Kind` of an untyped value.
pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
        other => type_name(other),
    }
}

/// `%v` of a number: integers plain, floats as Go's `'g'` with the shortest digits.
pub fn number(number: &serde_json::Number) -> String {
    if let Some(integer) = number.as_i64() {
        return integer.to_string();
    }
    if let Some(integer) = number.as_u64() {
        return integer.to_string();
    }
    float(number.as_f64().unwrap_or_default())
}

/// `%v` of a float64: exponent form below 1e-4 and from 1e21 on.
pub fn float(float: f64) -> String {
    let magnitude = float.abs();
    if magnitude != 0.0 && !(1e-4..1e21).contains(&magnitude) {
        let text = format!("{float:e}");
        let Some((mantissa, exponent)) = text.split_once('e') else { return text };
        let (sign, digits) = match exponent.strip_prefix('-') {
            Some(digits) => ('-', digits),
            None => ('+', exponent),
        };
        return format!("{mantissa}e{sign}{digits:0>2}");
    }
    format!("{float}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn quoting_matches_go() {
        for (text, expected) in [
            ("a", r#""a""#),
            ("a\"b\\", r#""a\"b\\""#),
            ("\n\t\u{1}", r#""\n\t\x01""#),
            ("\u{7}\u{8}\u{b}\u{c}", r#""\a\b\v\f""#),
            ("é世", "\"é世\""),
            ("\u{feff}", r#""\ufeff""#),
            ("\u{7f}", r#""\x7f""#),
        ] {
            assert_eq!(quote(text), expected);
        }
    }

    #[test]
    fn formatting_of_maps_and_floats_matches_go() {
        assert_eq!(
            display(&json!({"b": [1, "x", null], "a": {"c": true}})),
            "map[a:map[c:true] b:[1 x <nil>]]"
        );
        assert_eq!(float(1.5), "1.5");
        assert_eq!(float(1e21), "1e+21");
        assert_eq!(float(0.00001), "1e-05");
        assert_eq!(super::json(&json!({"a": "<&>"})), r#"{"a":"\u003c\u0026\u003e"}"#);
    }
}
