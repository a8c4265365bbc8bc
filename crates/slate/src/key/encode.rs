//! Encoding of values into keys.

use bson::raw::{RawBsonRef, RawDocument};

use super::{class, class_of, number::Number};

/// Encodes one value.
pub fn encode(value: RawBsonRef<'_>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16);
    encode_to(&mut bytes, value);
    bytes
}

/// Appends the encoding of one value.
pub fn encode_to(bytes: &mut Vec<u8>, value: RawBsonRef<'_>) {
    bytes.push(class_of(value));
    encode_payload(bytes, value);
}

fn encode_payload(bytes: &mut Vec<u8>, value: RawBsonRef<'_>) {
    use RawBsonRef as V;
    match value {
        V::MinKey | V::MaxKey | V::Null | V::Undefined => {}
        V::Double(_) | V::Int32(_) | V::Int64(_) | V::Decimal128(_) => {
            let number = Number::of(value).unwrap_or(Number::from_f64(f64::NAN));
            bytes.extend_from_slice(&number.encode());
        }
        V::String(text) | V::Symbol(text) | V::JavaScriptCode(text) => escape(bytes, text.as_bytes()),
        V::Document(document) => encode_document(bytes, document),
        V::Array(array) => {
            for value in array.into_iter().flatten() {
                encode_to(bytes, value);
            }
            bytes.push(class::END);
        }
        V::Binary(binary) => {
            // A document is at most 16 MiB, so the length fits.
            bytes.extend_from_slice(&(binary.bytes.len() as u32).to_be_bytes());
            bytes.push(binary.subtype.into());
            bytes.extend_from_slice(binary.bytes);
        }
        V::ObjectId(id) => bytes.extend_from_slice(&id.bytes()),
        V::Boolean(value) => bytes.push(value.into()),
        V::DateTime(date) => {
            bytes.extend_from_slice(&((date.timestamp_millis() as u64) ^ (1 << 63)).to_be_bytes());
        }
        V::Timestamp(timestamp) => {
            bytes.extend_from_slice(&timestamp.time.to_be_bytes());
            bytes.extend_from_slice(&timestamp.increment.to_be_bytes());
        }
        V::RegularExpression(regex) => {
            escape(bytes, regex.pattern.as_str().as_bytes());
            escape(bytes, regex.options.as_str().as_bytes());
        }
        V::DbPointer(_) => escape(bytes, format!("{value:?}").as_bytes()),
        V::JavaScriptCodeWithScope(code) => {
            escape(bytes, code.code.as_bytes());
            encode_document(bytes, code.scope);
        }
    }
}

fn encode_document(bytes: &mut Vec<u8>, document: &RawDocument) {
    for (name, value) in document.iter().flatten() {
        bytes.push(class_of(value));
        escape(bytes, name.as_str().as_bytes());
        encode_payload(bytes, value);
    }
    bytes.push(class::END);
}

/// Appends bytes that end with `00 00`; a zero byte inside becomes `00 ff`.
fn escape(bytes: &mut Vec<u8>, mut text: &[u8]) {
    while let Some(zero) = text.iter().position(|byte| *byte == 0) {
        bytes.extend_from_slice(&text[..zero]);
        bytes.extend_from_slice(&[0, 0xff]);
        text = &text[zero + 1..];
    }
    bytes.extend_from_slice(text);
    bytes.extend_from_slice(&[0, 0]);
}

/// Complements bytes in place, which reverses their order.
pub fn complement(bytes: &mut [u8]) {
    for byte in bytes {
        *byte = !*byte;
    }
}

/// Returns the least key above every key with this prefix, or nothing if there is none.
pub fn prefix_successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut successor = prefix[..=last].to_vec();
    successor[last] += 1;
    Some(successor)
}
