//! Parsing of headers that carry identities.

/// Decodes percent-encoded bytes of a header's key, as Go's `url.PathUnescape`. A malformed key stays as it is.
pub fn unescape_key(key: &str) -> String {
    fn hex(byte: Option<&u8>) -> Option<u8> {
        // A hexadecimal digit is below 16.
        byte.and_then(|byte| char::from(*byte).to_digit(16)).map(|digit| digit as u8)
    }
    let bytes = key.as_bytes();
    let (mut decoded, mut index) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(index) {
        if *byte != b'%' {
            decoded.push(*byte);
            index += 1;
            continue;
        }
        let (Some(high), Some(low)) = (hex(bytes.get(index + 1)), hex(bytes.get(index + 2))) else {
            return key.to_owned();
        };
        decoded.push(high << 4 | low);
        index += 3;
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// Encodes a key so that it can be part of a header's name: other bytes than those of a token are percent-encoded.
pub fn escape_key(key: &str) -> String {
    let is_token = |byte: u8| {
        byte.is_ascii_alphanumeric()
            || matches!(
                byte,
                b'!' | b'#'
                    | b'$'
                    | b'&'
                    | b'\''
                    | b'*'
                    | b'+'
                    | b'-'
                    | b'.'
                    | b'^'
                    | b'_'
                    | b'`'
                    | b'|'
                    | b'~'
            )
    };
    let mut escaped = String::with_capacity(key.len());
    for byte in key.bytes() {
        match is_token(byte) {
            true => escaped.push(char::from(byte)),
            false => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_are_percent_decoded() {
        assert_eq!(unescape_key("example.com%2fscope"), "example.com/scope");
        assert_eq!(unescape_key("a+b%20c"), "a+b c");
        for malformed in ["%", "a%2", "%zz", "%e2%82%"] {
            assert_eq!(unescape_key(malformed), malformed);
        }
    }

    proptest! {
        #[test]
        fn escaped_keys_are_decoded_as_they_were(key in "\\PC{0,40}") {
            prop_assert_eq!(unescape_key(&escape_key(&key)), key);
        }

        #[test]
        fn any_key_is_decoded_or_kept(key in "\\PC{0,40}") {
            let decoded = unescape_key(&key);
            prop_assert!(key.contains('%') || decoded == key);
        }
    }
}
