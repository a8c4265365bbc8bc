//! `${…}` in texts.

/// A piece of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Literal text.
    Text(String),
    /// Expression between `${` and `}`.
    Expression(String),
}

/// Splits a text into literals and expressions. An unclosed `${` is plain text.
pub(crate) fn scan(text: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut rest = text;
    let mut literal = String::new();
    while let Some(start) = rest.find("${") {
        let body = &rest[start + 2..];
        let Some(end) = find_end(body)? else { break };
        literal.push_str(&rest[..start]);
        if !literal.is_empty() {
            parts.push(Part::Text(std::mem::take(&mut literal)));
        }
        parts.push(Part::Expression(body[..end].to_owned()));
        rest = &body[end + 1..];
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        parts.push(Part::Text(literal));
    }
    Ok(parts)
}

/// The offset of the brace that closes an expression. Only `"` delimits strings for the scanner.
fn find_end(body: &str) -> Result<Option<usize>, String> {
    let mut depth = 0_usize;
    let mut quoted = false;
    let mut escaped = false;
    let mut previous = '\0';
    for (at, c) in body.char_indices() {
        if quoted {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => quoted = false,
                _ => {}
            }
            previous = '\0';
            continue;
        }
        match c {
            '"' => quoted = true,
            '{' if previous == '$' => {
                return Err("nested expressions are not allowed unless inside string literals".to_owned());
            }
            '{' => depth += 1,
            '}' if depth == 0 => return Ok(Some(at)),
            '}' => depth -= 1,
            _ => {}
        }
        previous = c;
    }
    Ok(None)
}

/// Returns the expression if the whole text is one `${…}`.
pub(crate) fn standalone(text: &str) -> Result<Option<String>, String> {
    let mut parts = scan(text)?;
    Ok(match (parts.len(), parts.pop()) {
        (1, Some(Part::Expression(expression))) => Some(expression),
        _ => None,
    })
}

/// Returns the text as one CEL expression, or nothing if it holds none.
pub(crate) fn to_cel(text: &str) -> Result<Option<String>, String> {
    let parts = scan(text)?;
    match parts.as_slice() {
        [Part::Expression(only)] => return Ok(Some(only.clone())),
        parts if parts.iter().all(|part| matches!(part, Part::Text(_))) => return Ok(None),
        _ => {}
    }
    let terms = parts.iter().map(|part| match part {
        Part::Text(text) => quote(text),
        Part::Expression(expression) => format!("({expression})"),
    });
    Ok(Some(terms.collect::<Vec<_>>().join(" + ")))
}

/// A CEL string literal.
fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if u32::from(c) < 0x20 => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_scanned_as_kro_scans_them() {
        let cel = |text: &str| to_cel(text).unwrap();
        assert_eq!(cel("plain"), None);
        assert_eq!(cel("${a.b}").as_deref(), Some("a.b"));
        assert_eq!(cel("${a}${b}").as_deref(), Some("(a) + (b)"));
        assert_eq!(cel("x-${a}\n").as_deref(), Some("\"x-\" + (a) + \"\\n\""));
        assert_eq!(cel("${{'a': {'b': 1}}}").as_deref(), Some("{'a': {'b': 1}}"));
        assert_eq!(cel("${\"}\" + \"${X}\"}").as_deref(), Some("\"}\" + \"${X}\""));
        assert_eq!(cel("${unclosed"), None);
        assert_eq!(cel("\\${a}").as_deref(), Some("\"\\\\\" + (a)"));
        assert!(to_cel("${a + ${b}}").is_err());
        assert_eq!(standalone(" ${a}").unwrap(), None);
        assert_eq!(standalone("${a}").unwrap().as_deref(), Some("a"));
    }
}
