//! Decoding of request bodies: JSON and YAML, with strict errors.
//!
//! Duplicate keys are allowed (the last wins, as in Go) but recorded, so that
//! `fieldValidation` can warn or refuse. Depth is bounded here, once, so that
//! every later walk over an object may recurse.
//!
//! Numbers: an integer that fits 64 bits stays one; others are floats, and a
//! float that is whole is an integer again, because Go encodes it as one.

mod depth;
mod json;
mod scalar;
mod syntax_error;
#[cfg(test)]
mod tests;
mod yaml;

pub use depth::{check_depth, count_nodes, depth};
pub(crate) use scalar::number;

use crate::status::Status;
use json::{Node, Reading};
use serde::de::DeserializeSeed;
use serde_json::Value;
use std::collections::HashMap;
use syntax_error::json_error;
use yaml::YamlBody;

/// Maximal nesting depth of an object. Every recursive walk in this crate relies on it.
pub const DEPTH_MAX: usize = 120;

/// Limit on strict errors, as in Go.
const STRICT_ERRORS_MAX: usize = 100;

/// Prefix of Go's YAML decoding errors.
const YAML_ERRORS: &str = "yaml: unmarshal errors:";

/// Error of decoding a body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("{0}")]
    Json(String),
    #[error("error converting YAML to JSON: {0}")]
    Yaml(String),
    #[error("exceeded max depth")]
    TooDeep,
}

impl From<DecodeError> for Status {
    fn from(error: DecodeError) -> Self {
        Self::bad_request(error.to_string())
    }
}

/// A decoded object and its duplicate keys.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    pub value: Value,
    duplicates: Vec<Duplicate>,
}

#[derive(Debug, Clone, PartialEq)]
enum Duplicate {
    Json { path: String, position: usize },
    Yaml { line: u64, key: String },
}

/// Order in which unknown and duplicate fields are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StrictOrder {
    /// Built-in kinds: document order.
    Document,
    /// Custom resources: duplicates first, then unknown fields sorted.
    DuplicatesFirst,
}

/// Decodes a JSON body.
pub fn json(body: &[u8]) -> Result<Decoded, DecodeError> {
    let mut reading = Reading::default();
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let value = Node { reading: &mut reading, depth: 0 }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value));
    match value {
        Ok(value) => Ok(Decoded { value, duplicates: reading.duplicates }),
        Err(_) if reading.too_deep => Err(DecodeError::TooDeep),
        Err(error) => Err(DecodeError::Json(json_error(body, &error))),
    }
}

/// Decodes the first document of a YAML body. Go ignores the others.
pub fn yaml(body: &[u8]) -> Result<Decoded, DecodeError> {
    let options = || {
        serde_saphyr::options! {
            duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
            // `defaultMode: 0644` is octal in the YAML that Kubernetes reads.
            legacy_octal_numbers: true,
            with_snippet: false,
        }
    };
    let read = match serde_saphyr::from_slice_with_options::<YamlBody>(body, options()) {
        Err(several @ serde_saphyr::Error::MultipleDocuments { .. }) => {
            serde_saphyr::read_with_options(&mut &body[..], options()).next().unwrap_or(Err(several))
        }
        read => read,
    };
    match read {
        Ok(YamlBody { value, duplicates }) => Ok(Decoded { value, duplicates }),
        Err(error) => Err(DecodeError::Yaml(format!("yaml: {error}"))),
    }
}

/// Decodes an apply patch or any body that may be YAML; JSON if it starts with a brace.
pub fn yaml_or_json(body: &[u8]) -> Result<Decoded, DecodeError> {
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
    if first == Some(&b'{')
        && let Ok(decoded) = json(body)
    {
        return Ok(decoded);
    }
    yaml(body)
}

/// Wraps a value without duplicate keys, such as one decoded from protobuf.
impl From<Value> for Decoded {
    fn from(value: Value) -> Self {
        Self { value, duplicates: Vec::new() }
    }
}

impl Decoded {
    /// Returns strict errors for `fieldValidation`: duplicate fields, and `unknown` fields
    /// found by the schema, as `duplicate field "a.b"` and `unknown field "a.c"`.
    pub fn strict_errors(&self, body: &[u8], mut unknown: Vec<String>, order: StrictOrder) -> Vec<String> {
        unknown.sort();
        let mut errors = Vec::new();
        let lines: Vec<_> = self
            .duplicates
            .iter()
            .filter_map(|duplicate| match duplicate {
                Duplicate::Yaml { line, key } => {
                    Some(format!("\n  line {line}: key {} already set in map", crate::go_text::quote(key)))
                }
                Duplicate::Json { .. } => None,
            })
            .collect();
        if !lines.is_empty() {
            errors.push(format!("{YAML_ERRORS}{}", lines.concat()));
        }
        let mut placed: Vec<(usize, String)> = Vec::new();
        // The typed decoder skips unknown fields, so it does not see their duplicates.
        let skipped = |path: &str| order == StrictOrder::Document && is_below_any(path, &unknown);
        for duplicate in &self.duplicates {
            if let Duplicate::Json { path, position } = duplicate
                && !skipped(path)
            {
                let message = format!("duplicate field \"{path}\"");
                if !placed.iter().any(|(_, seen)| *seen == message) {
                    placed.push((*position, message));
                }
            }
        }
        let positions = match order {
            StrictOrder::Document if !unknown.is_empty() => key_positions(body),
            _ => HashMap::new(),
        };
        placed.extend(unknown.into_iter().map(|path| {
            let position = positions.get(&path).copied().unwrap_or(usize::MAX);
            (position, format!("unknown field \"{path}\""))
        }));
        if order == StrictOrder::Document {
            placed.sort_by_key(|(position, _)| *position);
        }
        errors.extend(placed.into_iter().map(|(_, message)| message));
        errors.truncate(STRICT_ERRORS_MAX);
        errors
    }
}

/// Returns whether a path is one of `parents` or below one.
fn is_below_any(path: &str, parents: &[String]) -> bool {
    parents.iter().any(|parent| {
        path.strip_prefix(parent.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    })
}

/// Returns the message of a refused body: `strict decoding error: a, b`.
pub fn strict_error(errors: &[String]) -> String {
    format!("strict decoding error: {}", errors.join(", "))
}

/// Returns strict errors as warnings; each duplicate key in YAML is a warning of its own.
pub fn strict_warnings(errors: &[String]) -> impl Iterator<Item = &str> {
    errors.iter().flat_map(|error| match error.strip_prefix(YAML_ERRORS) {
        Some(lines) => lines.trim_start().lines().map(str::trim).collect(),
        None => vec![error.as_str()],
    })
}

/// Returns the position of every key in a JSON document, to order strict errors.
fn key_positions(body: &[u8]) -> HashMap<String, usize> {
    let mut reading = Reading::with_positions();
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let _ = Node { reading: &mut reading, depth: 0 }.deserialize(&mut deserializer);
    reading.positions.unwrap_or_default()
}
