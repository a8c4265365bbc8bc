//! Go's `%q`.

use std::fmt::Write;

/// `%q`: a double-quoted string with Go's escapes.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    push_quoted(&mut out, &[text]);
    out
}

/// Appends a text of several parts as [`quote`] writes it.
pub fn push_quoted(out: &mut String, parts: &[&str]) {
    out.push('"');
    for part in parts {
        push_escaped(out, part);
    }
    out.push('"');
}

fn push_escaped(out: &mut String, text: &str) {
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
    if text.bytes().all(is_plain) {
        return out.push_str(text);
    }
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            c if is_printable(c) => out.push(c),
            c if (c as u32) < 0x80 => push_formatted(out, format_args!("\\x{:02x}", c as u32)),
            c if (c as u32) < 0x1_0000 => push_formatted(out, format_args!("\\u{:04x}", c as u32)),
            c => push_formatted(out, format_args!("\\U{:08x}", c as u32)),
        }
    }
}

/// Go's `unicode.IsPrint`, approximately: no control characters, no spaces
/// but U+0020, no unassigned characters known to the standard library.
pub fn is_printable(character: char) -> bool {
    character == ' '
        || (!character.is_control()
            && !character.is_whitespace()
            && !matches!(character as u32,
                0xAD | 0x200B..=0x200F | 0x2028..=0x202E | 0x2060..=0x206F | 0xE000..=0xF8FF
                | 0xFEFF | 0xFFF9..=0xFFFB | 0xF0000..=0x10FFFF))
}

fn push_formatted(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = out.write_fmt(arguments);
}
