//! Decoding of keys, and skipping over encoded values.

use bson::{
    Binary, Bson, DateTime, Document, JavaScriptCodeWithScope, Regex, Timestamp, oid::ObjectId,
    spec::BinarySubtype,
};

use super::{
    class,
    number::{NUMBER_LEN, Number},
};
use crate::error::{Error, Result};

/// Depth at which decoding of a damaged key gives up.
const DEPTH_MAX: usize = 256;

/// Decodes the first value of `bytes` and returns it with the rest.
///
/// The value compares equal to the encoded one; a number may come back as another numeric type.
pub fn decode(bytes: &[u8]) -> Result<(Bson, &[u8])> {
    let (class, bytes) = split_class(bytes)?;
    decode_payload(class, bytes, 0)
}

/// Returns what follows the first value of `bytes`. `descending` says that the value is complemented.
#[inline]
pub fn skip(bytes: &[u8], descending: bool) -> Result<&[u8]> {
    // Numbers are the most frequent keys.
    if let ([class::NUMBER, rest @ ..], false) = (bytes, descending)
        && let Some(rest) = rest.get(NUMBER_LEN..)
    {
        return Ok(rest);
    }
    let flip = if descending { 0xff } else { 0 };
    let (class, rest) = bytes.split_first().ok_or_else(truncated)?;
    skip_payload(class ^ flip, rest, flip, 0)
}

fn decode_payload(kind: u8, bytes: &[u8], depth: usize) -> Result<(Bson, &[u8])> {
    if depth > DEPTH_MAX {
        return Err(Error::corrupt("a key is nested too deeply"));
    }
    Ok(match kind {
        class::MIN_KEY => (Bson::MinKey, bytes),
        class::MAX_KEY => (Bson::MaxKey, bytes),
        class::UNDEFINED => (Bson::Undefined, bytes),
        class::NULL => (Bson::Null, bytes),
        class::NUMBER => {
            let (number, rest) = bytes.split_first_chunk::<NUMBER_LEN>().ok_or_else(truncated)?;
            (Number::decode(*number).to_bson(), rest)
        }
        class::STRING => map(unescape(bytes)?, Bson::String),
        class::CODE => map(unescape(bytes)?, Bson::JavaScriptCode),
        class::DOCUMENT => map(decode_document(bytes, depth)?, Bson::Document),
        class::ARRAY => {
            let (mut values, mut rest) = (Vec::new(), bytes);
            loop {
                let (class, after) = split_class(rest)?;
                if class == class::END {
                    break (Bson::Array(values), after);
                }
                let (value, after) = decode_payload(class, after, depth + 1)?;
                values.push(value);
                rest = after;
            }
        }
        class::BINARY => {
            let (length, rest) = bytes.split_first_chunk::<4>().ok_or_else(truncated)?;
            let (subtype, rest) = rest.split_first().ok_or_else(truncated)?;
            let length = u32::from_be_bytes(*length) as usize;
            let (data, rest) = rest.split_at_checked(length).ok_or_else(truncated)?;
            (Bson::Binary(Binary { subtype: BinarySubtype::from(*subtype), bytes: data.to_vec() }), rest)
        }
        class::OBJECT_ID => {
            let (id, rest) = bytes.split_first_chunk::<12>().ok_or_else(truncated)?;
            (Bson::ObjectId(ObjectId::from_bytes(*id)), rest)
        }
        class::BOOLEAN => {
            let (value, rest) = bytes.split_first().ok_or_else(truncated)?;
            (Bson::Boolean(*value != 0), rest)
        }
        class::DATE => {
            let (millis, rest) = bytes.split_first_chunk::<8>().ok_or_else(truncated)?;
            let millis = (u64::from_be_bytes(*millis) ^ (1 << 63)) as i64;
            (Bson::DateTime(DateTime::from_millis(millis)), rest)
        }
        class::TIMESTAMP => {
            let (both, rest) = bytes.split_first_chunk::<8>().ok_or_else(truncated)?;
            let both = u64::from_be_bytes(*both);
            (Bson::Timestamp(Timestamp { time: (both >> 32) as u32, increment: both as u32 }), rest)
        }
        class::REGEX => {
            let (pattern, rest) = unescape(bytes)?;
            let (options, rest) = unescape(rest)?;
            let pattern = pattern.try_into().map_err(Error::corrupt)?;
            let options = options.try_into().map_err(Error::corrupt)?;
            (Bson::RegularExpression(Regex { pattern, options }), rest)
        }
        class::CODE_WITH_SCOPE => {
            let (code, rest) = unescape(bytes)?;
            let (scope, rest) = decode_document(rest, depth)?;
            (Bson::JavaScriptCodeWithScope(JavaScriptCodeWithScope { code, scope }), rest)
        }
        other => return Err(Error::corrupt(format!("class {other:#04x} in a key"))),
    })
}

fn decode_document(bytes: &[u8], depth: usize) -> Result<(Document, &[u8])> {
    let (mut document, mut rest) = (Document::new(), bytes);
    loop {
        let (class, after) = split_class(rest)?;
        if class == class::END {
            return Ok((document, after));
        }
        let (name, after) = unescape(after)?;
        let (value, after) = decode_payload(class, after, depth + 1)?;
        document.insert(name, value);
        rest = after;
    }
}

fn skip_payload(kind: u8, bytes: &[u8], flip: u8, depth: usize) -> Result<&[u8]> {
    if depth > DEPTH_MAX {
        return Err(Error::corrupt("a key is nested too deeply"));
    }
    let fixed = |length: usize| bytes.get(length..).ok_or_else(truncated);
    match kind {
        class::MIN_KEY | class::MAX_KEY | class::UNDEFINED | class::NULL => Ok(bytes),
        class::NUMBER => fixed(NUMBER_LEN),
        class::OBJECT_ID => fixed(12),
        class::BOOLEAN => fixed(1),
        class::DATE | class::TIMESTAMP => fixed(8),
        class::STRING | class::CODE | class::DB_POINTER => skip_escaped(bytes, flip),
        class::REGEX => skip_escaped(skip_escaped(bytes, flip)?, flip),
        class::DOCUMENT => skip_document(bytes, flip, depth),
        class::CODE_WITH_SCOPE => skip_document(skip_escaped(bytes, flip)?, flip, depth),
        class::ARRAY => {
            let mut rest = bytes;
            loop {
                let (class, after) = rest.split_first().ok_or_else(truncated)?;
                if class ^ flip == class::END {
                    return Ok(after);
                }
                rest = skip_payload(class ^ flip, after, flip, depth + 1)?;
            }
        }
        class::BINARY => {
            let (length, rest) = bytes.split_first_chunk::<4>().ok_or_else(truncated)?;
            let length = u32::from_be_bytes(length.map(|byte| byte ^ flip)) as usize;
            rest.get(length.saturating_add(1)..).ok_or_else(truncated)
        }
        other => Err(Error::corrupt(format!("class {other:#04x} in a key"))),
    }
}

fn skip_document(bytes: &[u8], flip: u8, depth: usize) -> Result<&[u8]> {
    let mut rest = bytes;
    loop {
        let (class, after) = rest.split_first().ok_or_else(truncated)?;
        if class ^ flip == class::END {
            return Ok(after);
        }
        rest = skip_payload(class ^ flip, skip_escaped(after, flip)?, flip, depth + 1)?;
    }
}

fn skip_escaped(bytes: &[u8], flip: u8) -> Result<&[u8]> {
    let mut at = 0;
    loop {
        let zero = bytes.get(at..).ok_or_else(truncated)?.iter().position(|byte| byte ^ flip == 0);
        let zero = at + zero.ok_or_else(truncated)?;
        match bytes.get(zero + 1).map(|byte| byte ^ flip) {
            Some(0) => return Ok(&bytes[zero + 2..]),
            Some(_) => at = zero + 2,
            None => return Err(truncated()),
        }
    }
}

fn unescape(bytes: &[u8]) -> Result<(String, &[u8])> {
    let rest = skip_escaped(bytes, 0)?;
    let escaped = &bytes[..bytes.len() - rest.len() - 2];
    let mut text = Vec::with_capacity(escaped.len());
    let mut after_zero = false;
    for byte in escaped {
        if !after_zero {
            text.push(*byte);
        }
        after_zero = *byte == 0 && !after_zero;
    }
    Ok((String::from_utf8(text).map_err(Error::corrupt)?, rest))
}

fn split_class(bytes: &[u8]) -> Result<(u8, &[u8])> {
    bytes.split_first().map(|(class, rest)| (*class, rest)).ok_or_else(truncated)
}

fn map<T>((value, rest): (T, &[u8]), build: impl FnOnce(T) -> Bson) -> (Bson, &[u8]) {
    (build(value), rest)
}

fn truncated() -> Error {
    Error::corrupt("a key is truncated")
}
