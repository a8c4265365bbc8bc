//! Go's texts for JSON syntax errors.

/// Returns Go's text for common syntax errors.
pub(super) fn json_error(body: &[u8], error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let offset =
        body.split_inclusive(|byte| *byte == b'\n').take(error.line().saturating_sub(1)).map(<[u8]>::len);
    let offset = offset.sum::<usize>() + error.column().saturating_sub(1);
    let found = body.get(offset).map(|byte| char::from(*byte));
    let text = error.to_string();
    if text.starts_with("expected ident")
        && let Some((found, literal, expected)) = broken_literal(body, offset)
    {
        let (found, expected) = (quote_character(found), quote_character(expected));
        return format!("invalid character {found} in literal {literal} (expecting {expected})");
    }
    let looking = match text.split(" at line").next().unwrap_or_default() {
        "expected value" | "expected ident" => "looking for beginning of value",
        "key must be a string" => "looking for beginning of object key string",
        "expected `,` or `}`" => "after object key:value pair",
        "expected `,` or `]`" => "after array element",
        "expected `:`" => "after object key",
        "trailing characters" => "after top-level value",
        "trailing comma" => "looking for beginning of value",
        other => return other.to_owned(),
    };
    match found {
        Some(found) => format!("invalid character {} {looking}", quote_character(found)),
        None => text,
    }
}

/// Returns the character at `offset` in a misspelled `null`, `true` or `false`, the literal, and the
/// expected character.
fn broken_literal(body: &[u8], offset: usize) -> Option<(char, &'static str, char)> {
    let found = char::from(*body.get(offset)?);
    ["null", "true", "false"].into_iter().find_map(|literal| {
        (1..literal.len()).find_map(|read| {
            let (begun, rest) = literal.split_at(read);
            let before = body.get(..offset)?;
            (before.ends_with(begun.as_bytes())).then_some((found, literal, rest.chars().next()?))
        })
    })
}

fn quote_character(character: char) -> String {
    match character {
        '\'' => r"'\''".to_owned(),
        '"' => "'\"'".to_owned(),
        c => {
            let quoted = crate::go_text::quote(&c.to_string());
            format!("'{}'", quoted.trim_matches('"'))
        }
    }
}
