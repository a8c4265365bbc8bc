//! Base64.

use crate::error::EvalError;
use crate::functions::Functions;
use crate::types::Type;
use crate::value::Value;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(crate) fn declare(f: &mut Functions) {
    f.global("base64.encode", "base64_encode_bytes", [Type::Bytes], Type::String, |_, args| match args {
        [Value::Bytes(bytes)] => Ok(Value::string(base64_encode(bytes))),
        _ => Err(EvalError::no_such_overload()),
    });
    f.global("base64.decode", "base64_decode_string", [Type::String], Type::Bytes, |_, args| match args {
        [Value::String(text)] => {
            let bytes = base64_decode(text).map(Value::bytes);
            bytes.ok_or_else(|| EvalError::failed("illegal base64 data"))
        }
        _ => Err(EvalError::no_such_overload()),
    });
}

/// Standard base64 with padding.
pub(crate) fn base64_encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let group = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            if place <= chunk.len() {
                text.push(char::from(ALPHABET[(group >> (18 - 6 * place)) as usize & 63]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

/// Standard base64, padded or not; line breaks are skipped.
pub(crate) fn base64_decode(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.bytes().filter(|b| !matches!(b, b'\n' | b'\r')).collect();
    let end = digits.iter().rposition(|b| *b != b'=').map_or(0, |last| last + 1);
    let padding = digits.len() - end;
    if end % 4 == 1 || padding > 2 || (padding > 0 && !digits.len().is_multiple_of(4)) {
        return None;
    }
    let mut bytes = Vec::with_capacity(end / 4 * 3 + 2);
    for chunk in digits[..end].chunks(4) {
        let mut group = 0_u32;
        for place in 0..4 {
            let digit = match chunk.get(place) {
                Some(b @ b'A'..=b'Z') => b - b'A',
                Some(b @ b'a'..=b'z') => b - b'a' + 26,
                Some(b @ b'0'..=b'9') => b - b'0' + 52,
                Some(b'+') => 62,
                Some(b'/') => 63,
                Some(_) => return None,
                None => 0,
            };
            group = group << 6 | u32::from(digit);
        }
        let [_, one, two, three] = group.to_be_bytes();
        bytes.extend_from_slice(&[one, two, three][..chunk.len() - 1]);
    }
    Some(bytes)
}
