//! Messages that are not JSON objects: times, quantities, raw JSON, unions.

use super::{
    DecodeError, decode, encode, envelope,
    message::{Descriptor, Message, Special},
    wire::{Reader, WireType, put_bytes, put_integer, put_message},
};
use crate::time::Time;
use serde_json::Value;

/// Range of RFC 3339: years 1 to 9999.
const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// Fields of a small message by number; the last one wins. Numbers are at most 3.
#[derive(Default)]
struct Small<'a> {
    integers: [Option<i64>; 4],
    bytes: [Vec<&'a [u8]>; 4],
}

impl<'a> Small<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut small = Self::default();
        let mut reader = Reader(bytes);
        while !reader.is_empty() {
            let (number, wire_type) = reader.tag()?;
            match (number as usize, wire_type) {
                (number @ 1..=3, WireType::Varint) => small.integers[number] = Some(reader.varint()? as i64),
                (number @ 1..=3, WireType::Length) => small.bytes[number].push(reader.bytes()?),
                _ => reader.skip(wire_type)?,
            }
        }
        Ok(small)
    }

    fn integer(&self, number: usize) -> i64 {
        self.integers.get(number).copied().flatten().unwrap_or(0)
    }

    fn last(&self, number: usize) -> Option<&'a [u8]> {
        self.bytes.get(number).and_then(|list| list.last().copied())
    }

    fn text(&self, number: usize) -> Result<&'a str, DecodeError> {
        decode::utf8(self.last(number).unwrap_or_default())
    }

    fn texts(&self, number: usize) -> Result<Value, DecodeError> {
        let all = self.bytes.get(number).map(Vec::as_slice).unwrap_or_default();
        let texts = all.iter().map(|bytes| decode::utf8(bytes).map(Value::from));
        texts.collect::<Result<Vec<_>, _>>().map(Value::Array)
    }
}

/// Decodes a special message; `None` if it is empty.
pub(super) fn read(special: Special, bytes: &[u8], depth: usize) -> Result<Option<Value>, DecodeError> {
    // A zero time is a message without fields.
    if bytes.is_empty() && matches!(special, Special::Time | Special::MicroTime) {
        return Ok(None);
    }
    let small = Small::read(bytes)?;
    let schema = |bytes: &[u8]| decode::message(schema_props(), bytes, depth);
    Ok(match special {
        Special::Time => Some(time(&small)?.to_string().into()),
        Special::MicroTime => Some(time(&small)?.to_micro().into()),
        Special::Quantity => Some(small.text(1)?.into()),
        Special::IntOrString if small.integer(1) == 1 => Some(small.text(3)?.into()),
        Special::IntOrString => Some((small.integer(2) as i32).into()),
        Special::Raw => raw(small.last(1).unwrap_or_default(), depth)?,
        Special::Texts => Some(small.texts(1)?),
        Special::SchemaOrArray => Some(match (small.last(1), &small.bytes[2]) {
            (Some(one), list) if list.is_empty() => schema(one)?,
            (_, list) => Value::Array(list.iter().map(|item| schema(item)).collect::<Result<_, _>>()?),
        }),
        Special::SchemaOrBool => Some(match small.last(2) {
            Some(one) => schema(one)?,
            None => (small.integer(1) != 0).into(),
        }),
        Special::SchemaOrTexts => Some(match small.last(1) {
            Some(one) => schema(one)?,
            None => small.texts(2)?,
        }),
    })
}

fn time(small: &Small<'_>) -> Result<Time, DecodeError> {
    let (unix_seconds, nanoseconds) = (small.integer(1), small.integer(2));
    if !SECONDS.contains(&unix_seconds) {
        return Err(DecodeError::IllegalTime);
    }
    Ok(Time { unix_seconds, nanoseconds: u32::try_from(nanoseconds).unwrap_or(0).min(999_999_999) })
}

/// Decodes JSON, or an embedded protobuf object.
fn raw(bytes: &[u8], depth: usize) -> Result<Option<Value>, DecodeError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    if envelope::is_envelope(bytes) {
        return envelope::object(bytes, depth).map(Some);
    }
    let decoded = crate::decode::json(bytes).map_err(|error| DecodeError::Raw(error.to_string()))?;
    Ok(Some(decoded.value))
}

/// Appends the fields of a special message.
pub(super) fn write(special: Special, to: &mut Vec<u8>, value: &Value) {
    let schema = |to: &mut Vec<u8>, number: u32, value: &Value| {
        put_message(to, number, |to| encode::message(to, schema_props(), value));
    };
    match (special, value) {
        (
            Special::Time | Special::MicroTime | Special::Quantity | Special::IntOrString,
            Value::String(text),
        ) => write_text(special, to, text),
        (Special::Quantity, Value::Number(number)) => put_bytes(to, 1, number.to_string().as_bytes()),
        (Special::IntOrString, Value::Number(number)) => {
            put_int_or_string(to, 0, number.as_i64().unwrap_or(0), "");
        }
        (Special::Raw, value) => put_bytes(to, 1, value.to_string().as_bytes()),
        (Special::Texts, value) => put_texts(to, 1, value),
        (Special::SchemaOrArray, Value::Array(list)) => list.iter().for_each(|item| schema(to, 2, item)),
        (Special::SchemaOrBool, Value::Bool(allows)) => put_integer(to, 1, i64::from(*allows)),
        (Special::SchemaOrBool, value @ Value::Object(_)) => {
            put_integer(to, 1, 1);
            schema(to, 2, value);
        }
        (Special::SchemaOrTexts, value @ Value::Array(_)) => put_texts(to, 2, value),
        (Special::SchemaOrArray | Special::SchemaOrTexts, value @ Value::Object(_)) => schema(to, 1, value),
        _ => {}
    }
}

/// Appends the fields of a special message whose JSON is a string.
pub(super) fn write_text(special: Special, to: &mut Vec<u8>, text: &str) {
    match special {
        Special::Time => put_time(to, text, |_| 0),
        Special::MicroTime => put_time(to, text, |nanoseconds| nanoseconds / 1000 * 1000),
        Special::Quantity => put_bytes(to, 1, text.as_bytes()),
        Special::IntOrString => put_int_or_string(to, 1, 0, text),
        _ => {}
    }
}

fn put_time(to: &mut Vec<u8>, text: &str, nanoseconds: impl Fn(u32) -> u32) {
    if let Some(time) = Time::parse(text) {
        put_integer(to, 1, time.unix_seconds);
        put_integer(to, 2, i64::from(nanoseconds(time.nanoseconds)));
    }
}

fn put_int_or_string(to: &mut Vec<u8>, kind: i64, integer: i64, text: &str) {
    put_integer(to, 1, kind);
    put_integer(to, 2, integer);
    put_bytes(to, 3, text.as_bytes());
}

fn put_texts(to: &mut Vec<u8>, number: u32, value: &Value) {
    for text in value.as_array().into_iter().flatten().filter_map(Value::as_str) {
        put_bytes(to, number, text.as_bytes());
    }
}

fn schema_props() -> &'static Message {
    static EMPTY: std::sync::LazyLock<Message> =
        std::sync::LazyLock::new(|| Message::of("", std::iter::empty()));
    Descriptor::named("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps")
        .map_or(&*EMPTY, Descriptor::message)
}
