//! Decoding of objects, with the same result as the JSON codec.

use super::{
    DecodeError,
    message::{Codec, Field, Message, Shape, Slot},
    special,
    wire::{Reader, WireType},
};
use crate::decode::DEPTH_MAX;
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Map, Value};

/// Decodes a message into an object.
pub(super) fn message(message: &Message, bytes: &[u8], depth: usize) -> Result<Value, DecodeError> {
    let mut object = Map::new();
    fields(message, bytes, &mut object, depth)?;
    Ok(Value::Object(object))
}

fn fields(
    message: &Message,
    bytes: &[u8],
    object: &mut Map<String, Value>,
    depth: usize,
) -> Result<(), DecodeError> {
    if depth >= DEPTH_MAX {
        return Err(DecodeError::TooDeep);
    }
    part(message, 0, bytes, object, depth)
}

/// Decodes the message or an inlined struct.
fn part(
    message: &Message,
    part: usize,
    bytes: &[u8],
    object: &mut Map<String, Value>,
    depth: usize,
) -> Result<(), DecodeError> {
    let mut reader = Reader(bytes);
    while !reader.is_empty() {
        let (number, wire_type) = reader.tag()?;
        match message.numbered(part, number) {
            Some(Slot::Part(inner)) if wire_type == WireType::Length => {
                // Inlined structs nest at most three deep.
                self::part(message, inner, reader.bytes()?, object, depth)?;
            }
            Some(Slot::Field(index)) => match message.field(index) {
                Some(field) => into(field, &mut reader, wire_type, object, depth)?,
                None => reader.skip(wire_type)?,
            },
            _ => reader.skip(wire_type)?,
        }
    }
    Ok(())
}

fn into(
    field: &Field,
    reader: &mut Reader<'_>,
    wire_type: WireType,
    object: &mut Map<String, Value>,
    depth: usize,
) -> Result<(), DecodeError> {
    match field.shape {
        Shape::One => {
            // Repeated occurrences of a message are merged.
            let before = match field.codec {
                Codec::Message(_) => object.remove(field.name),
                _ => None,
            };
            match one(field, field.codec, reader, wire_type, before, depth)? {
                Some(value) if field.presence || !is_zero(field.codec, &value) => {
                    object.insert(field.name.to_owned(), value);
                }
                _ => drop(object.remove(field.name)),
            }
        }
        Shape::List => {
            let list = object.entry(field.name).or_insert_with(|| Value::Array(Vec::new()));
            let Value::Array(list) = list else { return Ok(()) };
            if is_packed(field.codec, wire_type) {
                let mut packed = Reader(reader.bytes()?);
                while !packed.is_empty() {
                    let wire_type = natural_wire_type(field.codec);
                    list.extend(one(field, field.codec, &mut packed, wire_type, None, depth)?);
                }
            } else {
                let value = one(field, field.codec, reader, wire_type, None, depth)?;
                list.push(value.unwrap_or(Value::Null));
            }
        }
        Shape::Map => {
            let entries = object.entry(field.name).or_insert_with(|| Value::Object(Map::new()));
            let Value::Object(entries) = entries else { return Ok(()) };
            expect(field, wire_type, WireType::Length)?;
            let (key, value) = entry(field, reader.bytes()?, depth)?;
            entries.insert(key, value);
        }
    }
    Ok(())
}

/// Decodes a map entry: a message of optional key and value.
fn entry(field: &Field, bytes: &[u8], depth: usize) -> Result<(String, Value), DecodeError> {
    let (mut key, mut value) = (String::new(), None);
    let mut reader = Reader(bytes);
    while !reader.is_empty() {
        match reader.tag()? {
            (1, WireType::Length) => key = text(field, reader.bytes()?)?,
            (2, wire_type) => value = one(field, field.codec, &mut reader, wire_type, value, depth)?,
            (_, wire_type) => reader.skip(wire_type)?,
        }
    }
    let value = match value {
        Some(value) => value,
        None => {
            // An absent value is the zero value of its type.
            let zero = [0u8; 8];
            one(field, field.codec, &mut Reader(&zero), natural_wire_type(field.codec), None, depth)?
                .unwrap_or(Value::Null)
        }
    };
    Ok((key, value))
}

/// Decodes a value; `None` if it is unset, such as a zero time.
fn one(
    field: &Field,
    codec: Codec,
    reader: &mut Reader<'_>,
    wire_type: WireType,
    before: Option<Value>,
    depth: usize,
) -> Result<Option<Value>, DecodeError> {
    expect(field, wire_type, natural_wire_type(codec))?;
    Ok(Some(match codec {
        Codec::Text => text(field, reader.bytes()?)?.into(),
        Codec::Bytes => BASE64_STANDARD.encode(reader.bytes()?).into(),
        Codec::Integer32 => (reader.varint()? as i32).into(),
        Codec::Integer64 => (reader.varint()? as i64).into(),
        Codec::Boolean => (reader.varint()? != 0).into(),
        Codec::Double => return Ok(crate::decode::number(f64::from_bits(reader.fixed64()?))),
        Codec::Message(descriptor) => {
            let mut object = match before {
                Some(Value::Object(object)) => object,
                _ => Map::new(),
            };
            fields(descriptor.message(), reader.bytes()?, &mut object, depth + 1)?;
            Value::Object(object)
        }
        Codec::Special(special) => return special::read(special, reader.bytes()?, depth + 1),
    }))
}

pub(super) fn utf8(bytes: &[u8]) -> Result<&str, DecodeError> {
    std::str::from_utf8(bytes).map_err(|_| DecodeError::InvalidText(String::new()))
}

fn text(field: &Field, bytes: &[u8]) -> Result<String, DecodeError> {
    utf8(bytes).map(str::to_owned).map_err(|_| DecodeError::InvalidText(field.name.to_owned()))
}

fn expect(field: &Field, found: WireType, expected: WireType) -> Result<(), DecodeError> {
    if found == expected {
        return Ok(());
    }
    Err(DecodeError::WrongWireType { field: field.name.to_owned() })
}

fn natural_wire_type(codec: Codec) -> WireType {
    match codec {
        Codec::Integer32 | Codec::Integer64 | Codec::Boolean => WireType::Varint,
        Codec::Double => WireType::Fixed64,
        Codec::Text | Codec::Bytes | Codec::Message(_) | Codec::Special(_) => WireType::Length,
    }
}

fn is_packed(codec: Codec, wire_type: WireType) -> bool {
    wire_type == WireType::Length && natural_wire_type(codec) != WireType::Length
}

/// Returns whether JSON omits a zero that protobuf encodes: the field is not a pointer.
fn is_zero(codec: Codec, value: &Value) -> bool {
    match (codec, value) {
        (Codec::Message(_) | Codec::Special(_), _) => false,
        (_, Value::String(text)) => text.is_empty(),
        (_, Value::Number(number)) => number.as_f64() == Some(0.0),
        (_, value) => *value == Value::Bool(false),
    }
}
