//! Decoding of request bodies: JSON and YAML, with strict errors.
//!
//! Duplicate keys are allowed (the last wins, as in Go) but recorded, so that
//! `fieldValidation` can warn or refuse. Depth is bounded here, once, so that
//! every later walk over an object may recurse.
//!
//! Numbers: an integer that fits 64 bits stays one; others are floats, and a
//! float that is whole is an integer again, because Go encodes it as one.

use crate::status::Status;
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::collections::HashMap;
use std::fmt;

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

/// Checks that a value is within [`DEPTH_MAX`]. Does not recurse deeper than that.
pub fn check_depth(value: &Value) -> Result<(), DecodeError> {
    fn within(value: &Value, left: usize) -> bool {
        match value {
            Value::Array(items) => left > 0 && items.iter().all(|item| within(item, left - 1)),
            Value::Object(map) => left > 0 && map.values().all(|item| within(item, left - 1)),
            _ => true,
        }
    }
    if within(value, DEPTH_MAX) { Ok(()) } else { Err(DecodeError::TooDeep) }
}

/// Returns the depth of a value: 0 for a scalar, 1 for a list of scalars.
pub fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Counts the nodes of a value, unless there are more than `max`.
pub fn count_nodes(value: &Value, max: usize) -> Option<usize> {
    let mut count = 0;
    let mut pending = vec![value];
    while let Some(next) = pending.pop() {
        count += 1;
        match next {
            Value::Array(items) => pending.extend(items),
            Value::Object(map) => pending.extend(map.values()),
            _ => {}
        }
        if count + pending.len() > max {
            return None;
        }
    }
    Some(count)
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
    let mut reading = Reading { positions: Some(HashMap::new()), ..Reading::default() };
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let _ = Node { reading: &mut reading, depth: 0 }.deserialize(&mut deserializer);
    reading.positions.unwrap_or_default()
}

/// Returns Go's text for common syntax errors.
fn json_error(body: &[u8], error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let offset =
        body.split_inclusive(|byte| *byte == b'\n').take(error.line().saturating_sub(1)).map(<[u8]>::len);
    let offset = offset.sum::<usize>() + error.column().saturating_sub(1);
    let found = body.get(offset).map(|byte| char::from(*byte));
    let text = error.to_string();
    if text.starts_with("expected ident")
        && let Some((found, literal, expected)) = broken_literal(body, offset)
    {
        let (found, expected) = (quote_character(found), quote_character(expected));
        return format!("invalid character {found} in literal {literal} (expecting {expected})");
    }
    let looking = match text.split(" at line").next().unwrap_or_default() {
        "expected value" | "expected ident" => "looking for beginning of value",
        "key must be a string" => "looking for beginning of object key string",
        "expected `,` or `}`" => "after object key:value pair",
        "expected `,` or `]`" => "after array element",
        "expected `:`" => "after object key",
        "trailing characters" => "after top-level value",
        "trailing comma" => "looking for beginning of value",
        other => return other.to_owned(),
    };
    match found {
        Some(found) => format!("invalid character {} {looking}", quote_character(found)),
        None => text,
    }
}

/// Returns the character at `offset` in a misspelled `null`, `true` or `false`, the literal, and the
/// expected character.
fn broken_literal(body: &[u8], offset: usize) -> Option<(char, &'static str, char)> {
    let found = char::from(*body.get(offset)?);
    ["null", "true", "false"].into_iter().find_map(|literal| {
        (1..literal.len()).find_map(|read| {
            let (begun, rest) = literal.split_at(read);
            let before = body.get(..offset)?;
            (before.ends_with(begun.as_bytes())).then_some((found, literal, rest.chars().next()?))
        })
    })
}

fn quote_character(character: char) -> String {
    match character {
        '\'' => r"'\''".to_owned(),
        '"' => "'\"'".to_owned(),
        c => {
            let quoted = crate::go_text::quote(&c.to_string());
            format!("'{}'", quoted.trim_matches('"'))
        }
    }
}

// === Reading values ===

#[derive(Default)]
struct Reading {
    duplicates: Vec<Duplicate>,
    path: Vec<Step>,
    keys_seen: usize,
    too_deep: bool,
    positions: Option<HashMap<String, usize>>,
}

enum Step {
    Key(String),
    Index(usize),
}

impl Reading {
    fn printed_path(&self, last: &str) -> String {
        let mut out = String::new();
        for step in &self.path {
            match step {
                Step::Key(key) if out.is_empty() => out.push_str(key),
                Step::Key(key) => {
                    out.push('.');
                    out.push_str(key);
                }
                Step::Index(index) => {
                    out.push('[');
                    out.push_str(&index.to_string());
                    out.push(']');
                }
            }
        }
        if !out.is_empty() {
            out.push('.');
        }
        out.push_str(last);
        out
    }
}

struct Node<'a> {
    reading: &'a mut Reading,
    depth: usize,
}

impl Node<'_> {
    fn enter<E: de::Error>(&mut self) -> Result<(), E> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            self.reading.too_deep = true;
            return Err(E::custom("exceeded max depth"));
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// Visits scalars of JSON and YAML.
macro_rules! visit_scalars {
    () => {
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a value")
        }
        fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
            Ok(Value::Null)
        }
        fn visit_none<E: de::Error>(self) -> Result<Value, E> {
            Ok(Value::Null)
        }
        fn visit_bool<E: de::Error>(self, flag: bool) -> Result<Value, E> {
            Ok(Value::Bool(flag))
        }
        fn visit_i64<E: de::Error>(self, integer: i64) -> Result<Value, E> {
            Ok(integer.into())
        }
        fn visit_u64<E: de::Error>(self, integer: u64) -> Result<Value, E> {
            Ok(i64::try_from(integer).map_or_else(|_| (integer as f64).into(), Value::from))
        }
        fn visit_f64<E: de::Error>(self, float: f64) -> Result<Value, E> {
            number(float).ok_or_else(|| E::custom("number out of range"))
        }
        fn visit_str<E: de::Error>(self, text: &str) -> Result<Value, E> {
            Ok(text.into())
        }
        fn visit_string<E: de::Error>(self, text: String) -> Result<Value, E> {
            Ok(text.into())
        }
    };
}

/// Converts a float; whole ones that fit are integers.
pub(crate) fn number(float: f64) -> Option<Value> {
    // 2^63 is exact in f64; anything below it in magnitude converts exactly when whole.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if float.fract() == 0.0 && (-LIMIT..LIMIT).contains(&float) {
        return Some((float as i64).into());
    }
    Number::from_f64(float).map(Value::Number)
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    visit_scalars!();

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut sequence: A) -> Result<Value, A::Error> {
        self.enter()?;
        let mut items = Vec::new();
        self.reading.path.push(Step::Index(0));
        loop {
            if let Some(Step::Index(index)) = self.reading.path.last_mut() {
                *index = items.len();
            }
            match sequence.next_element_seed(Node { reading: self.reading, depth: self.depth })? {
                Some(item) => items.push(item),
                None => break,
            }
        }
        self.reading.path.pop();
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut access: A) -> Result<Value, A::Error> {
        self.enter()?;
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let position = self.reading.keys_seen;
            self.reading.keys_seen += 1;
            let duplicate = map.contains_key(&key);
            if duplicate || self.reading.positions.is_some() {
                let path = self.reading.printed_path(&key);
                if duplicate {
                    self.reading.duplicates.push(Duplicate::Json { path: path.clone(), position });
                }
                if let Some(positions) = &mut self.reading.positions {
                    positions.entry(path).or_insert(position);
                }
            }
            self.reading.path.push(Step::Key(key));
            let value = access.next_value_seed(Node { reading: self.reading, depth: self.depth })?;
            if let Some(Step::Key(key)) = self.reading.path.pop() {
                map.insert(key, value);
            }
        }
        Ok(Value::Object(map))
    }
}

// === YAML ===

struct YamlBody {
    value: Value,
    duplicates: Vec<Duplicate>,
}

impl<'de> Deserialize<'de> for YamlBody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut duplicates = Vec::new();
        let value = YamlNode { duplicates: &mut duplicates, depth: 0 }.deserialize(deserializer)?;
        Ok(Self { value, duplicates })
    }
}

struct YamlNode<'a> {
    duplicates: &'a mut Vec<Duplicate>,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for YamlNode<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        if self.depth > DEPTH_MAX {
            return Err(de::Error::custom("exceeded max depth"));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for YamlNode<'_> {
    type Value = Value;

    visit_scalars!();

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        let depth = self.depth + 1;
        while let Some(item) = sequence.next_element_seed(YamlNode { duplicates: self.duplicates, depth })? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        let depth = self.depth + 1;
        while let Some(key) = access.next_key::<serde_saphyr::Spanned<String>>()? {
            if map.contains_key(&key.value) {
                let line = key.referenced.line();
                self.duplicates.push(Duplicate::Yaml { line, key: key.value.clone() });
            }
            let value = access.next_value_seed(YamlNode { duplicates: self.duplicates, depth })?;
            map.insert(key.value, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn whole_floats_decode_as_integers() {
        let decoded =
            super::json(br#"[1, 1.0, 1e3, 1.5, 9223372036854775807, 9223372036854775808, -1]"#).unwrap();
        assert_eq!(
            decoded.value,
            json!([1, 1, 1000, 1.5, 9_223_372_036_854_775_807_i64, 9_223_372_036_854_775_808_f64, -1])
        );
    }

    #[test]
    fn duplicate_and_unknown_fields_are_reported_in_document_order() {
        let body = br#"{"spec": {"z": 1, "paused": true, "paused": false, "c": [{"n": 1, "n": 2, "u": 3}]}}"#;
        let decoded = super::json(body).unwrap();
        assert_eq!(decoded.value["spec"]["paused"], false);
        let unknown = vec!["spec.c[0].u".to_owned(), "spec.z".to_owned()];
        let errors = decoded.strict_errors(body, unknown.clone(), StrictOrder::Document);
        assert_eq!(
            strict_error(&errors),
            r#"strict decoding error: unknown field "spec.z", duplicate field "spec.paused", duplicate field "spec.c[0].n", unknown field "spec.c[0].u""#
        );
        let errors = decoded.strict_errors(body, unknown, StrictOrder::DuplicatesFirst);
        assert_eq!(errors[0], r#"duplicate field "spec.paused""#);
        assert_eq!(errors[2], r#"unknown field "spec.c[0].u""#);
    }

    #[test]
    fn duplicated_unknown_field_is_reported_once_as_unknown() {
        let body = br#"{"spec": {"x": {"y": 1, "y": 2}, "x": 2, "xs": 1, "xs": 2}}"#;
        let decoded = super::json(body).unwrap();
        let unknown = vec!["spec.x".to_owned()];
        let errors = decoded.strict_errors(body, unknown.clone(), StrictOrder::Document);
        assert_eq!(errors, [r#"unknown field "spec.x""#, r#"duplicate field "spec.xs""#]);
        // Custom resources are decoded without a type, which sees every duplicate.
        let errors = decoded.strict_errors(body, unknown, StrictOrder::DuplicatesFirst);
        assert_eq!(errors.len(), 4, "{errors:?}");
    }

    #[test]
    fn yaml_duplicates_are_reported_by_line() {
        let body = b"a: 1\nb:\n  c: x\n  c: z\n";
        let decoded = yaml(body).unwrap();
        assert_eq!(decoded.value, json!({"a": 1, "b": {"c": "z"}}));
        let errors = decoded.strict_errors(body, vec!["b.d".into()], StrictOrder::Document);
        assert_eq!(
            strict_error(&errors),
            "strict decoding error: yaml: unmarshal errors:\n  line 4: key \"c\" already set in map, unknown field \"b.d\""
        );
        let warnings: Vec<&str> = strict_warnings(&errors).collect();
        assert_eq!(warnings, ["line 4: key \"c\" already set in map", "unknown field \"b.d\""]);
    }

    #[test]
    fn yaml_scalars_become_json() {
        let decoded =
            yaml_or_json(b"a: 1\nb: \"1\"\nc: true\nd: null\ne: 1.5\nf: [x, {y: z}]\n1: int key\n").unwrap();
        assert_eq!(
            decoded.value,
            json!({"a": 1, "b": "1", "c": true, "d": null, "e": 1.5, "f": ["x", {"y": "z"}], "1": "int key"})
        );
        assert_eq!(yaml(b"mode: 0644\non: yes").unwrap().value, json!({"mode": 420, "on": true}));
        assert!(yaml(b"a: [").is_err());
        assert_eq!(
            yaml(b"a: 1\n---\nb: [").unwrap().value,
            json!({"a": 1}),
            "only the first document counts"
        );
    }

    #[test]
    fn nesting_beyond_the_limit_is_refused() {
        let deep = |depth: usize| [b"[".repeat(depth), b"]".repeat(depth)].concat();
        assert!(super::json(&deep(DEPTH_MAX)).is_ok());
        assert_eq!(super::json(&deep(DEPTH_MAX + 1)).unwrap_err(), DecodeError::TooDeep);
        assert!(super::json(&deep(100_000)).is_err());
        assert!(yaml(&deep(100_000)).is_err());
        assert!(yaml(&deep(DEPTH_MAX + 2)).is_err());
        assert!(check_depth(&super::json(&deep(DEPTH_MAX)).unwrap().value).is_ok());
        assert!(check_depth(&json!([super::json(&deep(DEPTH_MAX)).unwrap().value])).is_err());
    }

    #[test]
    fn syntax_errors_match_go() {
        for (body, expected) in [
            ("{", "unexpected end of JSON input"),
            ("x", "invalid character 'x' looking for beginning of value"),
            ("{x}", "invalid character 'x' looking for beginning of object key string"),
            (r#"{"a" 1}"#, "invalid character '1' after object key"),
            (r#"{"a": 1 "b": 2}"#, "invalid character '\"' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("{} x", "invalid character 'x' after top-level value"),
            ("nope", "invalid character 'o' in literal null (expecting 'u')"),
            ("[tru}", "invalid character '}' in literal true (expecting 'e')"),
        ] {
            assert_eq!(super::json(body.as_bytes()).unwrap_err().to_string(), expected, "{body}");
        }
    }
}
