//! Encoding of objects.
//!
//! Fields are encoded in order of their numbers, map entries in order of their keys, so equal
//! objects have equal bytes. A value that does not fit its field is omitted: stored objects have
//! been validated.

use super::{
    message::{Codec, Field, Message, Shape},
    special,
    wire::{put_bytes, put_double, put_integer, put_message},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Map, Value};

/// Appends an object's fields.
pub(super) fn message(to: &mut Vec<u8>, message: &Message, object: &Value) {
    let Value::Object(object) = object else { return };
    let mut present: Vec<(&Field, &Value)> = Vec::with_capacity(object.len());
    present.extend(
        object
            .iter()
            .filter(|(_, value)| !value.is_null())
            .filter_map(|(name, value)| Some((message.named(name)?, value))),
    );
    present.sort_unstable_by(|(a, _), (b, _)| a.path.cmp(&b.path));
    part(to, &present, 0, &|to: &mut Vec<u8>, known, number, value: &&Value| field(to, known, number, value));
}

/// Encodes fields of one message, at `depth` of their paths, sorted by number; `write` appends
/// one.
pub(super) fn part<T>(
    to: &mut Vec<u8>,
    mut present: &[(&Field, T)],
    depth: usize,
    write: &impl Fn(&mut Vec<u8>, &Field, u32, &T),
) {
    while let Some(((first, value), rest)) = present.split_first() {
        let Some(number) = first.path.get(depth) else { return };
        if first.path.len() == depth + 1 {
            write(to, first, *number, value);
            present = rest;
            continue;
        }
        let together = present.iter().take_while(|(field, _)| field.path.get(depth) == Some(number)).count();
        let (inner, rest) = present.split_at(together);
        put_message(to, *number, |to| part(to, inner, depth + 1, write));
        present = rest;
    }
}

fn field(to: &mut Vec<u8>, field: &Field, number: u32, value: &Value) {
    match (field.shape, value) {
        (Shape::One, value) => one(to, field.codec, number, value),
        (Shape::List, Value::Array(list)) => list.iter().for_each(|item| one(to, field.codec, number, item)),
        (Shape::Map, Value::Object(map)) => entries(to, field.codec, number, map),
        _ => {}
    }
}

pub(super) fn entries(to: &mut Vec<u8>, codec: Codec, number: u32, map: &Map<String, Value>) {
    for (key, value) in map {
        put_message(to, number, |to| {
            put_bytes(to, 1, key.as_bytes());
            one(to, codec, 2, value);
        });
    }
}

fn one(to: &mut Vec<u8>, codec: Codec, number: u32, value: &Value) {
    match (codec, value) {
        (Codec::Text, Value::String(text)) => put_bytes(to, number, text.as_bytes()),
        (Codec::Bytes, Value::String(text)) => {
            if let Ok(bytes) = BASE64_STANDARD.decode(text) {
                put_bytes(to, number, &bytes);
            }
        }
        (Codec::Integer32 | Codec::Integer64, Value::Number(integer)) => {
            if let Some(integer) = integer.as_i64() {
                put_integer(to, number, integer);
            }
        }
        (Codec::Boolean, Value::Bool(boolean)) => put_integer(to, number, i64::from(*boolean)),
        (Codec::Double, Value::Number(double)) => {
            if let Some(double) = double.as_f64() {
                put_double(to, number, double);
            }
        }
        (Codec::Message(descriptor), object) => {
            put_message(to, number, |to| message(to, descriptor.message(), object));
        }
        (Codec::Special(special), value) => put_message(to, number, |to| special::write(special, to, value)),
        _ => {}
    }
}
