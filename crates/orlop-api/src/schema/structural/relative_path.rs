//! Field paths relative to a schema: a rule's `fieldPath`, a selectable field's `jsonPath`.

use crate::field_error::FieldPath;
use crate::schema::unstructured::entries;
use serde_json::Value;

/// Resolves `.a.b` and `['c']` through properties and maps to a field path and its schema. Lists cannot be traversed.
pub fn resolve<'s>(
    path: &str,
    schema: &'s Value,
    allow_brackets: bool,
) -> Result<(FieldPath, &'s Value), String> {
    let mut tokens = Tokens { rest: path };
    let mut place = (FieldPath::nil(), schema);
    while let Some(token) = tokens.next() {
        let name = match token {
            "[" if !allow_brackets => return Err("array notation is not allowed".to_owned()),
            "[" => {
                let quoted = tokens.next().ok_or("unexpected end of JSON path")?;
                let inner = quoted.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
                unescaped(inner.ok_or_else(|| format!("expected single quoted string but got {quoted}"))?)?
            }
            "." => tokens.next().ok_or("unexpected end of JSON path")?.to_owned(),
            other => return Err(format!("expected [ or . but got: {other}")),
        };
        place = step(place, &name)?;
        if token == "[" {
            match tokens.next() {
                Some("]") => {}
                Some(other) => return Err(format!("expected ] but got {other}")),
                None => return Err("unexpected end of JSON path".to_owned()),
            }
        }
    }
    Ok(place)
}

fn step<'s>((path, schema): (FieldPath, &'s Value), name: &str) -> Result<(FieldPath, &'s Value), String> {
    if entries(schema, "properties").next().is_some() {
        let property = schema.get("properties").and_then(|properties| properties.get(name));
        return property
            .map(|next| (path.child(name), next))
            .ok_or("does not refer to a valid field".to_owned());
    }
    let values = schema.get("additionalProperties").filter(|values| values.is_object());
    values.map(|next| (path.key(name), next)).ok_or("does not refer to a valid field".to_owned())
}

/// Tokens: `.`, `[`, `]`, quoted strings, and names.
struct Tokens<'t> {
    rest: &'t str,
}

impl<'t> Tokens<'t> {
    fn next(&mut self) -> Option<&'t str> {
        let first = self.rest.chars().next()?;
        let length = match first {
            '.' | '[' | ']' => 1,
            '\'' => self.quoted().unwrap_or(self.rest.len()),
            _ => self.rest.find(['.', '[', ']']).unwrap_or(self.rest.len()),
        };
        let (token, rest) = self.rest.split_at(length);
        self.rest = rest;
        Some(token)
    }

    /// Returns the length of a quoted string with its quotes.
    fn quoted(&self) -> Option<usize> {
        let bytes = self.rest.as_bytes();
        (1..bytes.len()).find(|&end| bytes[end] == b'\'' && bytes[end - 1] != b'\\').map(|end| end + 1)
    }
}

fn unescaped(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            out.push(character);
            continue;
        }
        out.push(match characters.next() {
            Some('a') => '\x07',
            Some('b') => '\x08',
            Some('f') => '\x0c',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('v') => '\x0b',
            Some(same @ ('\'' | '\\')) => same,
            Some(other) => return Err(format!("invalid string literal: invalid escape char \\{other}")),
            None => '\\',
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn relative_paths_resolve_through_fields_and_maps() {
        let schema = json!({"type": "object", "properties": {
            "a": {"type": "object", "properties": {"b.c": {"type": "string"}, "it's": {"type": "integer"}}},
            "m": {"type": "object", "additionalProperties": {"type": "object", "properties": {"x": {"type": "boolean"}}}},
            "l": {"type": "array", "items": {"type": "string"}},
        }});
        for (path, brackets, expected) in [
            (".a", true, Ok("a")),
            (".a['b.c']", true, Ok("a.b.c")),
            (r".a['it\'s']", true, Ok("a.it's")),
            ("['a']['b.c']", true, Ok("a.b.c")),
            (".m['k'].x", true, Ok("m[k].x")),
            (".m.k.x", true, Ok("m[k].x")),
            (".l", true, Ok("l")),
            (".a['b.c']", false, Err("array notation is not allowed")),
            ("a", true, Err("expected [ or . but got: a")),
            (".", true, Err("unexpected end of JSON path")),
            (".a[", true, Err("unexpected end of JSON path")),
            (".a['b.c'", true, Err("unexpected end of JSON path")),
            (".a[0]", true, Err("expected single quoted string but got 0")),
            (".a['b.c'.", true, Err("expected ] but got .")),
            (".l[0]", true, Err("expected single quoted string but got 0")),
            (".l.x", true, Err("does not refer to a valid field")),
            (".a.z", true, Err("does not refer to a valid field")),
            (r".a['\q']", true, Err(r"invalid string literal: invalid escape char \q")),
        ] {
            let found = resolve(path, &schema, brackets).map(|(path, _)| path.to_string());
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{path}");
        }
    }
}
