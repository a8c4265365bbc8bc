//! Makes equal what must differ between two servers: uids, times, resourceVersions, addresses, tokens.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use crate::server::Answer;

/// Normalizer of one server's answers. Generated values become numbers in the order in which they were first seen.
#[derive(Debug, Default)]
pub(crate) struct Normalizer {
    uids: HashMap<String, usize>,
}

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

impl Normalizer {
    /// Returns an answer as a value in which nothing must differ.
    pub(crate) fn normalize(&mut self, answer: &Answer) -> Value {
        let media_type = answer.content_type.split(';').next().unwrap_or_default();
        json!({
            "code": answer.code,
            "contentType": media_type,
            "warnings": answer.warnings,
            "body": self.value(&answer.body),
        })
    }

    fn value(&mut self, value: &Value) -> Value {
        match value {
            Value::Object(map) => {
                let is_managed_fields_entry = map.contains_key("fieldsType") && map.contains_key("manager");
                let field_of = |(name, value): (&String, &Value)| {
                    let replaced =
                        REPLACED.contains(&name.as_str()) || (is_managed_fields_entry && name == "time");
                    let value = match value {
                        Value::String(_) if replaced => format!("<{name}>").into(),
                        value => self.value(value),
                    };
                    (name.clone(), value)
                };
                Value::Object(map.iter().map(field_of).collect::<Map<_, _>>())
            }
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Value::String(text) => self.text(text).into(),
            other => other.clone(),
        }
    }

    /// Replaces uids and times within a text.
    fn text(&mut self, text: &str) -> String {
        let mut replaced = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(character) = rest.chars().next() {
            if let Some(uid) = prefix(rest, "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx") {
                let next = self.uids.len() + 1;
                let number = *self.uids.entry(uid.to_owned()).or_insert(next);
                replaced.push_str(&format!("<uid {number}>"));
                rest = &rest[uid.len()..];
            } else if let Some(time) = prefix(rest, "dddd-dd-ddTdd:dd:dd") {
                // Times of requests are of the past; those of servers are of now.
                let is_given = time.starts_with("2026-01-01");
                replaced.push_str(if is_given { time } else { "<time>" });
                rest = &rest[time.len()..];
            } else {
                replaced.push(character);
                rest = &rest[character.len_utf8()..];
            }
        }
        replaced
    }
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
        Normalizer::default().normalize(&answer)["body"].take()
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
        assert_eq!(normalized(one)["metadata"]["uid"], "<uid 1>");
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
