//! Message descriptors: field numbers and wire types, resolved from the type tables.
//!
//! `data/types.tsv` has the numbers of ordinary fields. `data/protobuf.tsv` has the rest: a
//! field of an inlined struct has a path of numbers (`2.6`: field 6 of the message at field 2), and
//! a pointer field distinguishes absence from zero (`presence`).

use crate::schema::builtin::{Row, TypeEntry, blocks, types};
use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};

static NUMBERS: &str = include_str!("../../data/protobuf.tsv");

static INDEX: LazyLock<HashMap<&'static str, &'static str>> = LazyLock::new(|| blocks(NUMBERS).collect());

/// A type's fields.
#[derive(Debug)]
pub(crate) struct Message {
    /// Sorted by name.
    fields: Box<[Field]>,
    /// The message and its inlined structs, the message first.
    parts: Box<[Part]>,
}

/// Fields of a message, sorted by number.
type Part = Box<[(u32, Slot)]>;

/// A field of a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Slot {
    Field(usize),
    /// An inlined struct.
    Part(usize),
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    /// Path of field numbers; more than one if inlined.
    pub(super) path: Box<[u32]>,
    pub(super) shape: Shape,
    pub(super) codec: Codec,
    /// A zero on the wire is explicit (the Go field is a pointer).
    pub(super) presence: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    One,
    List,
    Map,
}

/// Encoding of a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Codec {
    Text,
    Bytes,
    Integer32,
    Integer64,
    Boolean,
    Double,
    Message(&'static Descriptor),
    Special(Special),
}

/// Messages that are not objects in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Special {
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    /// JSON, in bytes: `FieldsV1`, `RawExtension`, `JSON`.
    Raw,
    /// A named list of strings.
    Texts,
    SchemaOrArray,
    SchemaOrBool,
    SchemaOrTexts,
}

/// Message of a built-in type, built on first use.
#[derive(Debug)]
pub(super) struct Descriptor {
    entry: &'static TypeEntry,
    message: OnceLock<Message>,
}

static DESCRIPTORS: LazyLock<HashMap<&'static str, Descriptor>> = LazyLock::new(|| {
    types().map(|entry| (entry.name(), Descriptor { entry, message: OnceLock::new() })).collect()
});

impl Descriptor {
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        DESCRIPTORS.get(name)
    }

    pub(super) fn message(&self) -> &Message {
        self.message.get_or_init(|| Message::of(self.entry.name(), self.entry.rows()))
    }
}

impl Message {
    pub(super) fn of(name: &str, rows: impl Iterator<Item = Row>) -> Self {
        let extra: HashMap<_, _> = INDEX.get(name).copied().unwrap_or_default().lines().map(extra).collect();
        let mut fields: Vec<Field> = rows.filter_map(|row| field(row, &extra)).collect();
        fields.sort_by_key(|field| field.name);
        let mut parts = vec![Vec::new()];
        for (index, field) in fields.iter().enumerate() {
            let Some((last, outer)) = field.path.split_last() else { continue };
            let part = outer.iter().fold(0, |part, number| inlined(&mut parts, part, *number));
            parts[part].push((*last, Slot::Field(index)));
        }
        for part in &mut parts {
            part.sort_by_key(|(number, _)| *number);
        }
        Self { fields: fields.into(), parts: parts.into_iter().map(Into::into).collect() }
    }

    pub(super) fn named(&self, name: &str) -> Option<&Field> {
        let index = self.fields.binary_search_by_key(&name, |field| field.name).ok()?;
        self.fields.get(index)
    }

    pub(super) fn numbered(&self, part: usize, number: u32) -> Option<Slot> {
        let slots = self.parts.get(part)?;
        let index = slots.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        slots.get(index).map(|(_, slot)| *slot)
    }

    pub(super) fn field(&self, index: usize) -> Option<&Field> {
        self.fields.get(index)
    }
}

/// Returns the inlined struct at a number, and creates it on first use.
fn inlined(parts: &mut Vec<Vec<(u32, Slot)>>, part: usize, number: u32) -> usize {
    let found = parts[part].iter().find_map(|(at, slot)| match slot {
        Slot::Part(inner) if *at == number => Some(*inner),
        _ => None,
    });
    found.unwrap_or_else(|| {
        let new = parts.len();
        parts.push(Vec::new());
        parts[part].push((number, Slot::Part(new)));
        new
    })
}

/// Parses field, path and presence of a row of `protobuf.tsv`.
fn extra(line: &'static str) -> (&'static str, (&'static str, bool)) {
    let mut columns = line.split('\t').skip(1);
    let mut next = || columns.next().unwrap_or_default();
    let (field, path) = (next(), next());
    (field, (path, next() == "yes"))
}

fn field(row: Row, extra: &HashMap<&str, (&'static str, bool)>) -> Option<Field> {
    let Row { field: name, proto: number, json_type, default, .. } = row;
    let (path, pointer) = extra.get(name).copied().unwrap_or_default();
    let path = if path.is_empty() { number } else { path };
    let path: Box<[u32]> = path.split('.').filter_map(|number| number.parse().ok()).collect();
    if path.is_empty() {
        // `apiVersion` and `kind` travel in the envelope.
        return None;
    }
    let (shape, inner) = match json_type {
        list if list.starts_with('[') => (Shape::List, list.strip_prefix('[')?.strip_suffix(']')?),
        map if map.starts_with("map[") => (Shape::Map, map.strip_prefix("map[")?.strip_suffix(']')?),
        one => (Shape::One, one),
    };
    let (shape, inner) = match (name, inner) {
        // The only list of strings with its own message.
        ("verbs", "string") if number == "4" => (Shape::One, "[string]"),
        other => (shape, other.1),
    };
    // Fields without omitempty are kept even if zero.
    let always = matches!(default, "\"\"" | "0" | "false");
    Some(Field { name, path, shape, codec: codec(inner)?, presence: pointer || always })
}

fn codec(json_type: &str) -> Option<Codec> {
    Some(match json_type {
        "string" => Codec::Text,
        "string:byte" => Codec::Bytes,
        "integer:int32" => Codec::Integer32,
        "integer:int64" => Codec::Integer64,
        "boolean" => Codec::Boolean,
        "number:double" => Codec::Double,
        "[string]" => Codec::Special(Special::Texts),
        name => {
            let descriptor = Descriptor::named(name)?;
            special(name).map_or(Codec::Message(descriptor), Codec::Special)
        }
    })
}

fn special(name: &str) -> Option<Special> {
    Some(match name.rsplit('.').next()? {
        "Time" => Special::Time,
        "MicroTime" => Special::MicroTime,
        "Quantity" => Special::Quantity,
        "IntOrString" => Special::IntOrString,
        "FieldsV1" | "RawExtension" | "JSON" => Special::Raw,
        "JSONSchemaPropsOrArray" => Special::SchemaOrArray,
        "JSONSchemaPropsOrBool" => Special::SchemaOrBool,
        "JSONSchemaPropsOrStringArray" => Special::SchemaOrTexts,
        _ => return None,
    })
}
