//! Fields of a kind, in a notation short enough to be read beside the calls that use them.
//!
//! One text gives three things: the CRD's schema, the names of fields on the wire, and their comparison. A field is a
//! name, then flags, then its type, then its name on the wire if the rule does not give it, then its own fields:
//!
//! | text | meaning |
//! |---|---|
//! | `name!` `name=` | required; immutable |
//! | `name~` | absent is the same as the zero value: removing the field clears it in AWS |
//! | `name~3` | absent is the same as this default |
//! | `name[]` `name[]{…}` | list of strings, of objects |
//! | `name{…}` `name{}` `name{}{…}` | object, map of strings, map of objects |
//! | `name:i` `:b` `:n` `:x` `:t` | integer, boolean, number, bytes in base64, time; else a string |
//! | `nameRef@` `nameRefs[]@` `name$` | reference, references, key of a Secret |
//! | `name>Wire` `name[]>El*` `name[]>Wrap/El` | name on the wire; XML list without and with a wrapper |
//! | `name#` `name^` | lists compare as sets; never compared; a Secret `name^$` is written, not read |

mod compare;
mod schema;
mod wire;

pub(crate) use compare::{Difference, compare};
pub(crate) use schema::{custom_resource_definition, object_schema};
pub(crate) use wire::{child, escape, from_json, from_xml, to_json, to_query, to_xml};

use serde_json::Value;

/// A type of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaf {
    Text,
    Integer,
    Boolean,
    Number,
    Bytes,
    Time,
    /// A reference to an object: `{from: {name, namespace}}`.
    Reference,
    /// A key of a Secret: `{name, namespace, key}`.
    Secret,
}

/// A type of a field.
#[derive(Clone, Debug)]
pub(crate) enum Type {
    Leaf(Leaf),
    Object(Vec<Field>),
    List(Box<Type>),
    Map(Box<Type>),
}

/// A field.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) required: bool,
    pub(crate) immutable: bool,
    /// The value that an absent field stands for. `Null` is the zero value of its type.
    pub(crate) absent: Option<Value>,
    pub(crate) unordered: bool,
    pub(crate) ignored: bool,
    pub(crate) kind: Type,
    /// Name on the wire, if the rule does not give it.
    pub(crate) wire: Option<String>,
    /// XML: name of a list's elements. `flat` lists have no wrapper.
    pub(crate) element: Option<String>,
    pub(crate) flat: bool,
}

/// Case of a service's names on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    Pascal,
    Camel,
}

impl Field {
    /// Returns the name on the wire: initialisms lose their capitals (`kmsKeyARN` is `KmsKeyArn`).
    pub(crate) fn wire_name(&self, case: Case) -> String {
        match &self.wire {
            Some(name) => name.clone(),
            None => wire_name(&self.name, case),
        }
    }

    /// True for what names other objects and never reaches AWS.
    pub(crate) fn is_reference(&self) -> bool {
        match &self.kind {
            Type::Leaf(leaf) => matches!(leaf, Leaf::Reference | Leaf::Secret),
            Type::List(item) => matches!(**item, Type::Leaf(Leaf::Reference)),
            _ => false,
        }
    }
}

fn wire_name(name: &str, case: Case) -> String {
    let chars: Vec<char> = name.chars().collect();
    let mut out = String::with_capacity(name.len());
    for (at, letter) in chars.iter().enumerate() {
        let after_capital = at > 0 && chars[at - 1].is_uppercase();
        let before_small = chars.get(at + 1).is_some_and(|next| next.is_lowercase());
        match at {
            0 if case == Case::Pascal => out.extend(letter.to_uppercase()),
            _ if letter.is_uppercase() && after_capital && !before_small => out.extend(letter.to_lowercase()),
            _ => out.push(*letter),
        }
    }
    out
}

/// Parses the notation. It is written in this crate only; what is wrong with it is found by a test of every kind.
pub(crate) fn parse(text: &str) -> Vec<Field> {
    let tokens: Vec<char> = text.chars().collect();
    Parser { text: &tokens, at: 0 }.fields()
}

struct Parser<'a> {
    text: &'a [char],
    at: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn take(&mut self, desired: char) -> bool {
        let found = self.peek() == Some(desired);
        self.at += usize::from(found);
        found
    }

    fn word(&mut self, allowed: impl Fn(char) -> bool) -> String {
        let start = self.at;
        while self.peek().is_some_and(&allowed) {
            self.at += 1;
        }
        self.text[start..self.at].iter().collect()
    }

    fn fields(&mut self) -> Vec<Field> {
        let mut fields = Vec::new();
        loop {
            self.word(char::is_whitespace);
            match self.peek() {
                None => return fields,
                Some('}') => {
                    self.at += 1;
                    return fields;
                }
                Some(_) => fields.push(self.field()),
            }
        }
    }

    fn field(&mut self) -> Field {
        let name = self.word(|c| c.is_alphanumeric() || c == '_');
        let mut field = Field {
            name,
            required: false,
            immutable: false,
            absent: None,
            unordered: false,
            ignored: false,
            kind: Type::Leaf(Leaf::Text),
            wire: None,
            element: None,
            flat: false,
        };
        let mut layers = Vec::new();
        let mut leaf = Type::Leaf(Leaf::Text);
        loop {
            match self.peek() {
                Some('!') => field.required = true,
                Some('=') => field.immutable = true,
                Some('#') => field.unordered = true,
                Some('^') => field.ignored = true,
                Some('@') => leaf = Type::Leaf(Leaf::Reference),
                Some('$') => leaf = Type::Leaf(Leaf::Secret),
                Some('~') => {
                    self.at += 1;
                    let value = self.word(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '/' | '.'));
                    let parsed = serde_json::from_str(&value).ok();
                    field.absent = Some(match value.is_empty() {
                        true => Value::Null,
                        false => parsed.unwrap_or(Value::String(value)),
                    });
                    continue;
                }
                Some(':') => {
                    self.at += 1;
                    leaf = Type::Leaf(match self.peek() {
                        Some('i') => Leaf::Integer,
                        Some('b') => Leaf::Boolean,
                        Some('n') => Leaf::Number,
                        Some('x') => Leaf::Bytes,
                        _ => Leaf::Time,
                    });
                }
                Some('[') => {
                    self.at += 1;
                    layers.push('[');
                }
                Some('>') => {
                    self.at += 1;
                    let wire = self.word(|c| c.is_alphanumeric() || matches!(c, ':' | '-'));
                    if self.take('*') {
                        (field.element, field.flat) = (Some(wire.clone()), true);
                    } else if self.take('/') {
                        field.element = Some(self.word(char::is_alphanumeric));
                    }
                    field.wire = Some(wire);
                    continue;
                }
                Some('{') => {
                    self.at += 1;
                    if self.take('}') {
                        layers.push('{');
                        continue;
                    }
                    leaf = Type::Object(self.fields());
                    break;
                }
                _ => break,
            }
            self.at += 1;
        }
        field.kind = layers.into_iter().rev().fold(leaf, |inner, layer| match layer {
            '[' => Type::List(Box::new(inner)),
            _ => Type::Map(Box::new(inner)),
        });
        field
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notation_is_parsed_with_types_flags_and_wire_names() {
        let fields = parse(
            "name!= ttl:i~300>TTL code!{s3Key zipFile:x} rules[]>Rule*{id>ID} tags{} vpcIDs[] roleRef@",
        );
        let names: Vec<_> = fields.iter().map(|field| field.name.as_str()).collect();
        assert_eq!(names, ["name", "ttl", "code", "rules", "tags", "vpcIDs", "roleRef"]);
        assert!(fields[0].required && fields[0].immutable);
        assert_eq!(fields[1].absent, Some(300.into()));
        assert_eq!(fields[1].wire_name(Case::Pascal), "TTL");
        assert!(matches!(&fields[2].kind, Type::Object(inner) if inner.len() == 2));
        assert!(fields[3].flat && fields[3].element.as_deref() == Some("Rule"));
        assert!(matches!(fields[4].kind, Type::Map(_)));
        assert!(fields[6].is_reference());
    }

    #[test]
    fn initialisms_lose_their_capitals_on_the_wire() {
        assert_eq!(wire_name("kmsKeyARN", Case::Pascal), "KmsKeyArn");
        assert_eq!(wire_name("disableExecuteAPIEndpoint", Case::Camel), "disableExecuteApiEndpoint");
        assert_eq!(wire_name("apiID", Case::Camel), "apiId");
        assert_eq!(wire_name("codeSHA256", Case::Pascal), "CodeSha256");
    }
}
