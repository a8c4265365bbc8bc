//! Finding a field in BSON by stepping over the others, which is what filters and indexes do all day.
//!
//! Documents are validated when they enter the engine. Damaged bytes end a search; they never panic.

use bson::{
    DateTime,
    oid::ObjectId,
    raw::{RawBsonRef, RawDocument},
};

/// Outcome of a search.
#[derive(Debug)]
pub(crate) enum Found<'a> {
    Value(RawBsonRef<'a>),
    Nothing,
    /// The field, or one before it, has a type that is not understood here.
    Other,
}

/// Finds a field of a document.
pub(crate) fn find<'a>(document: &'a [u8], name: &[u8]) -> Found<'a> {
    let Some(mut rest) = document.get(4..) else { return Found::Nothing };
    loop {
        let Some((&kind, after)) = rest.split_first() else { return Found::Nothing };
        if kind == 0 {
            return Found::Nothing;
        }
        let Some(name_len) = after.iter().position(|byte| *byte == 0) else { return Found::Nothing };
        let value = &after[name_len + 1..];
        if &after[..name_len] == name {
            return match parse(kind, value) {
                Some(value) => Found::Value(value),
                None => Found::Other,
            };
        }
        let Some(length) = length_of(kind, value) else { return Found::Other };
        match value.get(length..) {
            Some(next) => rest = next,
            None => return Found::Nothing,
        }
    }
}

/// Returns the length of a value, if its type is understood.
fn length_of(kind: u8, value: &[u8]) -> Option<usize> {
    let prefix =
        || value.first_chunk::<4>().and_then(|length| usize::try_from(i32::from_le_bytes(*length)).ok());
    Some(match kind {
        0x01 | 0x09 | 0x11 | 0x12 => 8,
        0x02 => prefix()?.checked_add(4)?,
        0x03 | 0x04 => prefix()?,
        0x05 => prefix()?.checked_add(5)?,
        0x07 => 12,
        0x08 => 1,
        0x0a => 0,
        0x10 => 4,
        0x13 => 16,
        _ => return None,
    })
}

/// Parses a value, if its type is understood.
fn parse(kind: u8, value: &[u8]) -> Option<RawBsonRef<'_>> {
    Some(match kind {
        0x01 => RawBsonRef::Double(f64::from_le_bytes(*value.first_chunk()?)),
        0x02 => {
            let length = length_of(kind, value)?;
            let (text, end) = value.get(4..length)?.split_last().map(|(end, text)| (text, *end))?;
            if end != 0 {
                return None;
            }
            RawBsonRef::String(std::str::from_utf8(text).ok()?)
        }
        0x03 => RawBsonRef::Document(RawDocument::from_bytes(value.get(..length_of(kind, value)?)?).ok()?),
        0x07 => RawBsonRef::ObjectId(ObjectId::from_bytes(*value.first_chunk()?)),
        0x08 => RawBsonRef::Boolean(*value.first()? != 0),
        0x09 => RawBsonRef::DateTime(DateTime::from_millis(i64::from_le_bytes(*value.first_chunk()?))),
        0x0a => RawBsonRef::Null,
        0x10 => RawBsonRef::Int32(i32::from_le_bytes(*value.first_chunk()?)),
        0x12 => RawBsonRef::Int64(i64::from_le_bytes(*value.first_chunk()?)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use bson::{Bson, RawDocumentBuf, doc};
    use proptest::prelude::*;

    use super::*;

    /// The library's answer.
    fn slowly<'a>(document: &'a RawDocument, name: &str) -> Option<RawBsonRef<'a>> {
        document.iter().flatten().find(|(found, _)| found.as_str() == name).map(|(_, value)| value)
    }

    #[test]
    fn every_type_is_found_as_the_library_finds_it() {
        let document = doc! {
            "a": 1.5, "b": "text", "c": { "x": 1 }, "d": [1, 2], "e": ObjectId::from_bytes([1; 12]), "f": true,
            "g": DateTime::from_millis(5), "h": Bson::Null, "i": 7, "j": 8_i64,
            "k": Bson::Binary(bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![1, 2] }),
            "l": Bson::Timestamp(bson::Timestamp { time: 1, increment: 2 }), "m": Bson::MinKey, "n": "last",
        };
        let raw = RawDocumentBuf::try_from(&document).expect("BSON");
        for name in document.keys().map(String::as_str).chain(["zz", ""]) {
            assert_eq!(crate::path::field(&raw, name), slowly(&raw, name), "{name}");
        }
    }

    proptest! {
        #[test]
        fn damaged_documents_end_the_search_without_panic(
            damage in proptest::collection::vec((any::<u16>(), any::<u8>()), 0..8),
            cut in any::<u16>(),
        ) {
            let mut bytes = doc! { "a": "text", "b": [1, { "c": 2.5 }], "d": 4 }.to_vec().expect("BSON");
            for (place, byte) in damage {
                let place = usize::from(place) % bytes.len();
                bytes[place] = byte;
            }
            bytes.truncate(usize::from(cut) % (bytes.len() + 1));
            for name in ["a", "b", "d", "e"] {
                let _ = find(&bytes, name.as_bytes());
            }
        }
    }
}
