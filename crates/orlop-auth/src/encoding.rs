//! DER and PEM.

use base64::{Engine, engine::general_purpose::STANDARD};

/// Returns a DER value.
pub(crate) fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut value = vec![tag];
    match content.len() {
        length @ ..0x80 => value.push(length as u8),
        length => {
            let bytes: Vec<u8> = length.to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
            value.push(0x80 | bytes.len() as u8);
            value.extend(bytes);
        }
    }
    value.extend_from_slice(content);
    value
}

/// Returns DER as PEM.
pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    const LINE: usize = 64;
    let mut text = format!("-----BEGIN {label}-----\n");
    for (index, character) in STANDARD.encode(der).chars().enumerate() {
        if index > 0 && index % LINE == 0 {
            text.push('\n');
        }
        text.push(character);
    }
    text + &format!("\n-----END {label}-----\n")
}
