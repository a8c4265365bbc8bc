//! Values of fields as AWS writes them: JSON, XML elements, form parameters.

use std::fmt::Write as _;

use roxmltree::Node;
use serde_json::{Map, Value, json};

use super::{Case, Field, Leaf, Type};

/// Renames fields to those on the wire. References and fields that are not described are left out.
pub(crate) fn to_json(fields: &[Field], value: &Value, case: Case) -> Value {
    let mut out = Map::new();
    for field in fields.iter().filter(|field| !field.is_reference()) {
        if let Some(inner) = value.get(&field.name).filter(|inner| !inner.is_null()) {
            out.insert(field.wire_name(case), type_to_json(&field.kind, inner, case));
        }
    }
    Value::Object(out)
}

fn type_to_json(kind: &Type, value: &Value, case: Case) -> Value {
    match (kind, value) {
        (Type::Object(fields), _) => to_json(fields, value, case),
        (Type::List(item), Value::Array(items)) => {
            items.iter().map(|inner| type_to_json(item, inner, case)).collect()
        }
        (Type::Map(item), Value::Object(entries)) => {
            let entries = entries.iter().map(|(key, inner)| (key.clone(), type_to_json(item, inner, case)));
            Value::Object(entries.collect())
        }
        _ => value.clone(),
    }
}

/// Renames fields of an answer to the kind's. What is not described is dropped, and so is what is null.
pub(crate) fn from_json(fields: &[Field], value: &Value, case: Case) -> Value {
    let mut out = Map::new();
    for field in fields.iter().filter(|field| !field.is_reference()) {
        if let Some(inner) = value.get(field.wire_name(case)).filter(|inner| !inner.is_null()) {
            out.insert(field.name.clone(), type_from_json(&field.kind, inner, case));
        }
    }
    Value::Object(out)
}

fn type_from_json(kind: &Type, value: &Value, case: Case) -> Value {
    match (kind, value) {
        (Type::Object(fields), _) => from_json(fields, value, case),
        (Type::List(item), Value::Array(items)) => {
            items.iter().map(|inner| type_from_json(item, inner, case)).collect()
        }
        (Type::Map(item), Value::Object(entries)) => {
            let entries = entries.iter().map(|(key, inner)| (key.clone(), type_from_json(item, inner, case)));
            Value::Object(entries.collect())
        }
        // JSON services send times as seconds.
        (Type::Leaf(Leaf::Time), Value::Number(seconds)) => {
            let seconds = seconds.as_f64().unwrap_or_default();
            #[expect(clippy::cast_possible_truncation, reason = "seconds since 1970")]
            let time = orlop_api::time::Time::from_unix(seconds as i64);
            json!(time.to_string())
        }
        _ => value.clone(),
    }
}

/// Writes fields as XML elements.
pub(crate) fn to_xml(fields: &[Field], value: &Value, out: &mut String) {
    for field in fields.iter().filter(|field| !field.is_reference()) {
        let Some(inner) = value.get(&field.name).filter(|inner| !inner.is_null()) else { continue };
        let name = field.wire_name(Case::Pascal);
        match (&field.kind, inner) {
            (Type::List(item), Value::Array(items)) => {
                let element = field.element.as_deref().unwrap_or("member");
                if !field.flat {
                    let _ = write!(out, "<{name}>");
                }
                for each in items {
                    element_to_xml(element, item, each, out);
                }
                if !field.flat {
                    let _ = write!(out, "</{name}>");
                }
            }
            (kind, _) if name == "xsi:type" => {
                // An attribute of the element around it; see `element_to_xml`.
                debug_assert!(matches!(kind, Type::Leaf(_)));
            }
            (kind, _) => element_to_xml(&name, kind, inner, out),
        }
    }
}

fn element_to_xml(name: &str, kind: &Type, value: &Value, out: &mut String) {
    let kind_attribute = match kind {
        Type::Object(fields) => fields
            .iter()
            .find(|field| field.wire.as_deref() == Some("xsi:type"))
            .and_then(|field| value.get(&field.name)?.as_str()),
        _ => None,
    };
    match kind_attribute {
        Some(text) => {
            let _ = write!(
                out,
                "<{name} xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xsi:type=\"{}\">",
                escape(text)
            );
        }
        None => {
            let _ = write!(out, "<{name}>");
        }
    }
    match kind {
        Type::Object(fields) => to_xml(fields, value, out),
        _ => out.push_str(&escape(&text_of(value))),
    }
    let _ = write!(out, "</{name}>");
}

/// Escapes text of XML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Reads fields from the children of an XML element.
pub(crate) fn from_xml(fields: &[Field], element: Node<'_, '_>) -> Value {
    let mut out = Map::new();
    for field in fields.iter().filter(|field| !field.is_reference()) {
        let name = field.wire_name(Case::Pascal);
        let children = |of: Node<'_, '_>, name: &str| -> Vec<Value> {
            let Type::List(item) = &field.kind else { return Vec::new() };
            let found = of.children().filter(|child| child.tag_name().name() == name);
            found.filter_map(|child| type_from_xml(item, child)).collect()
        };
        if matches!(field.kind, Type::List(_)) {
            let items = match field.flat {
                true => {
                    let items = children(element, field.element.as_deref().unwrap_or(&name));
                    (!items.is_empty()).then_some(items)
                }
                false => child(element, &name)
                    .map(|wrapper| children(wrapper, field.element.as_deref().unwrap_or("member"))),
            };
            if let Some(items) = items {
                out.insert(field.name.clone(), Value::Array(items));
            }
            continue;
        }
        if name == "xsi:type" {
            let found = element.attributes().find(|attribute| attribute.name() == "type");
            if let Some(attribute) = found {
                out.insert(field.name.clone(), json!(attribute.value()));
            }
            continue;
        }
        if let Some(found) = child(element, &name).and_then(|found| type_from_xml(&field.kind, found)) {
            out.insert(field.name.clone(), found);
        }
    }
    Value::Object(out)
}

fn type_from_xml(kind: &Type, element: Node<'_, '_>) -> Option<Value> {
    let text = element.text().unwrap_or_default();
    Some(match kind {
        Type::Object(fields) => from_xml(fields, element),
        Type::Leaf(Leaf::Integer) => json!(text.trim().parse::<i64>().ok()?),
        Type::Leaf(Leaf::Boolean) => json!(text.trim().eq_ignore_ascii_case("true")),
        Type::Leaf(Leaf::Number) => json!(text.trim().parse::<f64>().ok()?),
        // The API server wants no fractions of a second.
        Type::Leaf(Leaf::Time) => json!(without_fraction(text.trim())),
        _ => json!(text),
    })
}

fn without_fraction(time: &str) -> String {
    match time.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => time.replace("+00:00", "Z"),
    }
}

/// Returns a child element by name, whatever its name space.
pub(crate) fn child<'a, 'input>(element: Node<'a, 'input>, name: &str) -> Option<Node<'a, 'input>> {
    element.children().find(|child| child.tag_name().name() == name)
}

/// Writes a value as parameters of AWS' query protocol: `Tags.member.1.Key`.
pub(crate) fn to_query(prefix: &str, value: &Value, out: &mut Vec<(String, String)>) {
    match value {
        Value::Null => {}
        Value::Object(entries) => {
            for (key, inner) in entries {
                let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                to_query(&name, inner, out);
            }
        }
        Value::Array(items) => {
            for (at, inner) in items.iter().enumerate() {
                to_query(&format!("{prefix}.member.{}", at + 1), inner, out);
            }
        }
        other => out.push((prefix.to_owned(), text_of(other))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    #[test]
    fn xml_is_read_back_as_it_was_written() {
        let fields = parse(
            "corsRules[]>CORSRule*{allowedMethods[]>AllowedMethod* id>ID maxAgeSeconds:i} tagSet[]>TagSet/Tag{key value}",
        );
        let value = json!({"corsRules": [{"allowedMethods": ["GET", "PUT"], "id": "a<b", "maxAgeSeconds": 5}],
            "tagSet": [{"key": "k", "value": "v&w"}]});
        let mut text = String::from("<Configuration>");
        to_xml(&fields, &value, &mut text);
        text.push_str("</Configuration>");
        let document = roxmltree::Document::parse(&text).expect("well-formed XML");
        assert_eq!(from_xml(&fields, document.root_element()), value);
    }

    #[test]
    fn query_parameters_number_members_from_one() {
        let mut out = Vec::new();
        to_query("", &json!({"RoleName": "r", "Tags": [{"Key": "a", "Value": "b"}]}), &mut out);
        let expected = [("RoleName", "r"), ("Tags.member.1.Key", "a"), ("Tags.member.1.Value", "b")];
        assert_eq!(out, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn json_times_become_texts_and_unknown_fields_go() {
        let fields = parse("createdAt:t name");
        let answer = json!({"CreatedAt": 0, "Name": "n", "Other": 1});
        assert_eq!(
            from_json(&fields, &answer, Case::Pascal),
            json!({"createdAt": "1970-01-01T00:00:00Z", "name": "n"})
        );
    }
}
