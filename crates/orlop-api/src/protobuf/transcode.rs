//! Transcoding of JSON to protobuf without decoding an object: stored JSON is served as protobuf at
//! about the cost of parsing it.
//!
//! The output equals [`encode`] of the decoded object. Unusual input (a value that does not fit its field,
//! a null in a list) falls back to that.

use std::{fmt, ops::Range};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Value, value::RawValue};

use super::{
    encode,
    message::{Codec, Field, Message, Shape, Special},
    special,
    wire::{put_bytes, put_double, put_integer, put_message},
};

/// Appends the fields of a JSON object; `None`, after a partial write, on unusual input.
pub(super) fn message(to: &mut Vec<u8>, message: &Message, json: &[u8]) -> Option<()> {
    let mut json = serde_json::Deserializer::from_slice(json);
    Object { to, message }.deserialize(&mut json).ok()?;
    json.end().ok()
}

/// Transcodes an object as a message.
struct Object<'a> {
    to: &'a mut Vec<u8>,
    message: &'a Message,
}

impl<'de> DeserializeSeed<'de> for Object<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut fields: M) -> Result<(), M::Error> {
        let Self { to, message } = self;
        let start = to.len();
        let mut present: Vec<(&Field, Range<usize>)> = Vec::with_capacity(8);
        while let Some(known) = fields.next_key_seed(Name(message))? {
            let Some(field) = known else {
                fields.next_value::<IgnoredAny>()?;
                continue;
            };
            let (Some(number), before) = (field.path.last(), to.len()) else {
                return Err(M::Error::custom("a field without a number"));
            };
            let place = Place { to: &mut *to, codec: field.codec, number: *number, may_be_null: true };
            match field.shape {
                Shape::One => fields.next_value_seed(place)?,
                Shape::List => fields.next_value_seed(Items(place))?,
                Shape::Map => fields.next_value_seed(Entries(place))?,
            }
            present.push((field, before - start..to.len() - start));
        }
        let in_order = present.is_sorted_by(|(a, _), (b, _)| a.path < b.path);
        if in_order && present.iter().all(|(field, _)| field.path.len() == 1) {
            return Ok(());
        }
        present.sort_unstable_by(|(a, _), (b, _)| a.path.cmp(&b.path));
        let written = to.split_off(start);
        encode::part(to, &present, 0, &|to: &mut Vec<u8>, _, _, range: &Range<usize>| {
            to.extend_from_slice(written.get(range.clone()).unwrap_or_default());
        });
        Ok(())
    }
}

/// Looks up the field of a message by name.
struct Name<'a>(&'a Message);

impl<'de, 'a> DeserializeSeed<'de> for Name<'a> {
    type Value = Option<&'a Field>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for Name<'a> {
    type Value = Option<&'a Field>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.named(name))
    }
}

/// Context of an encoded value.
struct Place<'a> {
    to: &'a mut Vec<u8>,
    codec: Codec,
    number: u32,
    /// Null means absent, as in a field.
    may_be_null: bool,
}

impl Place<'_> {
    /// Returns the context of a list item or map value.
    fn another(&mut self) -> Place<'_> {
        Place { to: self.to, codec: self.codec, number: self.number, may_be_null: false }
    }

    fn unusual<E: Error, T>() -> Result<T, E> {
        Err(E::custom("unusual"))
    }
}

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        match self.codec {
            Codec::Special(Special::Raw) => {
                let raw = <&RawValue as serde::Deserialize>::deserialize(json)?.get();
                if !(self.may_be_null && raw == "null") {
                    put_message(self.to, self.number, |to| put_bytes(to, 1, raw.as_bytes()));
                }
                Ok(())
            }
            Codec::Special(
                special @ (Special::Texts
                | Special::SchemaOrArray
                | Special::SchemaOrBool
                | Special::SchemaOrTexts),
            ) => {
                let value = <Value as serde::Deserialize>::deserialize(json)?;
                if !(self.may_be_null && value.is_null()) {
                    put_message(self.to, self.number, |to| special::write(special, to, &value));
                }
                Ok(())
            }
            _ => json.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Place<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        match self.codec {
            Codec::Text => put_bytes(self.to, self.number, text.as_bytes()),
            Codec::Bytes => match BASE64_STANDARD.decode(text) {
                Ok(bytes) => put_bytes(self.to, self.number, &bytes),
                Err(_) => return Self::unusual(),
            },
            Codec::Special(special) => {
                put_message(self.to, self.number, |to| special::write_text(special, to, text));
            }
            _ => return Self::unusual(),
        }
        Ok(())
    }

    fn visit_i64<E: Error>(self, integer: i64) -> Result<(), E> {
        match self.codec {
            Codec::Integer32 | Codec::Integer64 => put_integer(self.to, self.number, integer),
            Codec::Double => put_double(self.to, self.number, integer as f64),
            Codec::Special(special) => {
                put_message(self.to, self.number, |to| special::write(special, to, &integer.into()));
            }
            _ => return Self::unusual(),
        }
        Ok(())
    }

    fn visit_u64<E: Error>(self, integer: u64) -> Result<(), E> {
        match i64::try_from(integer) {
            Ok(integer) => self.visit_i64(integer),
            Err(_) => Self::unusual(),
        }
    }

    fn visit_f64<E: Error>(self, double: f64) -> Result<(), E> {
        match self.codec {
            Codec::Double => put_double(self.to, self.number, double),
            _ => return Self::unusual(),
        }
        Ok(())
    }

    fn visit_bool<E: Error>(self, boolean: bool) -> Result<(), E> {
        match self.codec {
            Codec::Boolean => put_integer(self.to, self.number, i64::from(boolean)),
            _ => return Self::unusual(),
        }
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        if self.may_be_null { Ok(()) } else { Self::unusual() }
    }

    fn visit_map<M: MapAccess<'de>>(self, fields: M) -> Result<(), M::Error> {
        let Codec::Message(descriptor) = self.codec else { return Self::unusual() };
        put_message(self.to, self.number, |to| Object { to, message: descriptor.message() }.visit_map(fields))
    }
}

/// Transcodes the items of a list.
struct Items<'a>(Place<'a>);

impl<'de> DeserializeSeed<'de> for Items<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Items<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<S: SeqAccess<'de>>(mut self, mut items: S) -> Result<(), S::Error> {
        while items.next_element_seed(self.0.another())?.is_some() {}
        Ok(())
    }
}

/// Transcodes map entries, each a message of key and value.
struct Entries<'a>(Place<'a>);

impl<'de> DeserializeSeed<'de> for Entries<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Entries<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<M: MapAccess<'de>>(self, mut entries: M) -> Result<(), M::Error> {
        let Place { to, codec, number, .. } = self.0;
        while let Some(key) = entries.next_key::<String>()? {
            put_message(to, number, |to| {
                put_bytes(to, 1, key.as_bytes());
                entries.next_value_seed(Place { to, codec, number: 2, may_be_null: false })
            })?;
        }
        Ok(())
    }
}
