//! Makes equal what must differ between two servers: uids, times, resourceVersions, addresses, tokens.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::server::Answer;

/// Fields whose values are replaced.
const REPLACED: &[&str] = &[
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "lastTransitionTime",
    "lastUpdateTime",
    "lastHeartbeatTime",
    "startTime",
    "continue",
    "caBundle",
    "storageVersionHash",
    "hash",
    "serverAddress",
    "clientCIDR",
    "token",
    "expirationTimestamp",
];

/// Returns an answer as a value in which nothing must differ.
pub(crate) fn normalized(answer: &Answer) -> Value {
    let media_type = answer.content_type.split(';').next().unwrap_or_default();
    json!({
        "code": answer.code,
        "contentType": media_type,
        "warnings": answer.warnings,
        "body": value_of(&answer.body),
    })
}

fn value_of(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let is_managed_fields_entry = map.contains_key("fieldsType") && map.contains_key("manager");
            let field_of = |(name, value): (&String, &Value)| {
                let replaced =
                    REPLACED.contains(&name.as_str()) || (is_managed_fields_entry && name == "time");
                let value = match (name.as_str(), value) {
                    (_, Value::String(_)) if replaced => format!("<{name}>").into(),
                    ("clusterIP" | "clusterIPs", value) => each_text(value, address),
                    ("cells", value) => each_text(&value_of(value), age),
                    (_, value) => value_of(value),
                };
                (name.clone(), value)
            };
            Value::Object(map.iter().map(field_of).collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(value_of).collect(),
        Value::String(text) => text_of(text).into(),
        other => other.clone(),
    }
}

/// Replaces generated values within a text.
fn text_of(text: &str) -> String {
    const VERSION: &str = "resourceVersion";
    let mut replaced = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let taken = if let Some((object, length)) = quoted_object(rest) {
            replaced.push_str(&sorted(&value_of(&object)).to_string());
            length
        } else if let Some(uid) = prefix(rest, "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx") {
            replaced.push_str("<uid>");
            uid.len()
        } else if let Some(time) = prefix(rest, "dddd-dd-ddTdd:dd:dd") {
            // Times of requests are of the past; those of servers are of now.
            let is_given = time.starts_with("2026-01-01");
            replaced.push_str(if is_given { time } else { "<time>" });
            time.len()
        } else if let Some(length) = length_of(rest, "in scheme \"", |end| end != '"') {
            // The file of a scheme follows from the build.
            replaced.push_str("in scheme \"<file>");
            length
        } else if let Some(length) = length_of(rest, "X509SHA256=", |end| end.is_ascii_hexdigit()) {
            replaced.push_str("<credential>");
            length
        } else if let Some(length) = length_of(rest, "kube-api-access-", |end| end.is_ascii_alphanumeric()) {
            replaced.push_str("kube-api-access-<suffix>");
            length
        } else if let Some(after) = rest.strip_prefix(VERSION) {
            // `"resourceVersion":"7"` of an object that a message quotes.
            let quoted = after.trim_start_matches(['\\', '"', ':']);
            let digits = quoted.trim_start_matches(|digit: char| digit.is_ascii_digit());
            let is_one = quoted.len() < after.len() && digits.len() < quoted.len();
            replaced.push_str(VERSION);
            replaced.push_str(if is_one { " <version>" } else { "" });
            if is_one { rest.len() - digits.len() } else { VERSION.len() }
        } else {
            replaced.push(character);
            character.len_utf8()
        };
        rest = &rest[taken..];
    }
    replaced
}

/// Returns an object that is quoted at the beginning of a text, as a string or as it is, and the length of the quotation. Go quotes the keys of
/// objects in the order of their fields.
fn quoted_object(text: &str) -> Option<(Value, usize)> {
    if text.starts_with("{\"") {
        let mut objects = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        return Some((objects.next()?.ok()?, objects.byte_offset()));
    }
    let mut quotations =
        serde_json::Deserializer::from_str(text.strip_prefix("\"{").map(|_| text)?).into_iter::<String>();
    let object = serde_json::from_str(&quotations.next()?.ok()?).ok()?;
    Some((object, quotations.byte_offset()))
}

/// Returns a value whose keys are sorted.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let fields: BTreeMap<&String, Value> =
                map.iter().map(|(key, value)| (key, sorted(value))).collect();
            fields.into_iter().map(|(key, value)| (key.clone(), value)).collect()
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

/// Returns a value in which all texts are replaced.
fn each_text(value: &Value, replace: fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => replace(text).into(),
        Value::Array(items) => items.iter().map(|item| each_text(item, replace)).collect(),
        other => other.clone(),
    }
}

/// Replaces an address that was allocated. Requests ask for those of 10.0.7.0/24.
fn address(text: &str) -> String {
    let is_allocated = text.starts_with("10.0.") && !text.starts_with("10.0.7.");
    if is_allocated { "<address>" } else { text }.to_owned()
}

/// Replaces an age of seconds.
fn age(text: &str) -> String {
    let is_age = text.strip_suffix('s').is_some_and(|number| number.parse::<u32>().is_ok());
    if is_age { "<age>" } else { text }.to_owned()
}

/// Returns the length of a prefix and of the characters of one sort that follow it.
fn length_of(text: &str, prefix: &str, is_part: impl Fn(char) -> bool) -> Option<usize> {
    let rest = text.strip_prefix(prefix)?;
    Some(prefix.len() + rest.find(|character| !is_part(character)).unwrap_or(rest.len()))
}

/// Returns the part of a text that begins it and has a pattern: `x` is a hexadecimal digit, `d` a decimal one.
fn prefix<'a>(text: &'a str, pattern: &str) -> Option<&'a str> {
    let candidate = text.get(..pattern.len())?;
    let matches = candidate.bytes().zip(pattern.bytes()).all(|(found, expected)| match expected {
        b'x' => found.is_ascii_hexdigit(),
        b'd' => found.is_ascii_digit(),
        expected => found == expected,
    });
    matches.then_some(candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalized(body: Value) -> Value {
        let answer = Answer { code: 200, content_type: "application/json; x".into(), warnings: vec![], body };
        super::normalized(&answer)["body"].take()
    }

    #[test]
    fn generated_values_are_made_equal() {
        let object = |uid: &str, version: &str, time: &str| {
            json!({"metadata": {"uid": uid, "resourceVersion": version, "creationTimestamp": time,
                "managedFields": [{"manager": "m", "fieldsType": "FieldsV1", "time": time}]},
                "message": format!("not {uid} at {time}")})
        };
        let one = object("0a1b2c3d-0000-4000-8000-000000000001", "7", "2026-11-16T10:00:00Z");
        let two = object("0a1b2c3d-0000-4000-8000-00000000ffff", "8", "2026-11-16T11:11:11Z");
        assert_eq!(normalized(one.clone()), normalized(two));
        assert_eq!(normalized(one)["metadata"]["uid"], "<uid>");
    }

    #[test]
    fn generated_values_within_texts_are_made_equal() {
        let text = |text: &str| normalized(json!({"message": text}))["message"].take();
        for (one, other) in [
            (r#"x \"resourceVersion\":\"7\"}"#, r#"x \"resourceVersion\":\"812\"}"#),
            ("name kube-api-access-rbf5j.", "name kube-api-access-8rd9t."),
            ("X509SHA256=2cad", "X509SHA256=1fff"),
            (r#"value: "{\"a\":1,\"b\":{}}": x"#, r#"value: "{\"b\":{},\"a\":1}": x"#),
        ] {
            assert_eq!(text(one), text(other));
        }
        assert_eq!(text("no resourceVersion is given"), "no resourceVersion is given");
        let service =
            |address: &str| normalized(json!({"spec": {"clusterIP": address, "clusterIPs": [address]}}));
        assert_eq!(service("10.0.1.2"), service("10.0.200.3"));
        assert_ne!(service("10.0.7.7"), service("10.0.7.8"));
        let cells = |age: &str| normalized(json!({"cells": ["name", age]}));
        assert_eq!(cells("0s"), cells("12s"));
    }

    #[test]
    fn absent_and_given_values_stay_different() {
        assert_ne!(normalized(json!({"resourceVersion": "1"})), normalized(json!({})));
        assert_ne!(
            normalized(json!({"a": "2026-01-01T00:00:00Z"})),
            normalized(json!({"a": "2026-01-01T00:00:01Z"}))
        );
    }
}
