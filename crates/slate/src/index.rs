//! Index entries of a document.

use bson::raw::{RawBsonRef, RawDocument};

use crate::{
    catalog::{IndexField, IndexSpec},
    error::{Error, Result},
    key,
};

/// Longest encoded key of an index, without the `_id`. With one, of at most 8 KiB, it is a store's longest key.
const KEY_LEN_MAX: usize = 16 << 10;
/// Most entries of a document in one index.
const ENTRIES_MAX: usize = 100_000;

/// Entries of one document in one index: encoded fields, without the `_id`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Entries {
    pub(crate) keys: Vec<Vec<u8>>,
    /// True if an array was met on the way.
    pub(crate) multikey: bool,
}

/// Computes the entries of a document.
pub(crate) fn entries(spec: &IndexSpec, document: &RawDocument) -> Result<Entries> {
    let mut result = Entries { keys: vec![Vec::new()], multikey: false };
    let mut present = false;
    let mut array: Option<&[Box<str>]> = None;
    for field in &spec.fields {
        let values = field_values(field, document, &mut present);
        if let Some(met) = array_prefix(field, document) {
            if array.is_some_and(|array| array != met) {
                return Err(Error::invalid(format!(
                    "cannot index parallel arrays: index {:?} meets a second array at {}",
                    spec.name, field.path
                )));
            }
            array = Some(met);
            result.multikey = true;
        }
        if result.keys.len().saturating_mul(values.len()) > ENTRIES_MAX {
            return Err(Error::TooLarge(format!(
                "a document has at most {ENTRIES_MAX} entries in index {:?}",
                spec.name
            )));
        }
        if let [only] = values.as_slice() {
            for key in &mut result.keys {
                key.extend_from_slice(only);
            }
        } else {
            result.keys = result
                .keys
                .iter()
                .flat_map(|key| values.iter().map(|value| [&key[..], value].concat()))
                .collect();
        }
    }
    if spec.sparse && !present {
        return Ok(Entries::default());
    }
    if let Some(key) = result.keys.iter().find(|key| key.len() > KEY_LEN_MAX) {
        return Err(Error::TooLarge(format!(
            "a key of index {:?} has {} bytes, above {KEY_LEN_MAX}",
            spec.name,
            key.len()
        )));
    }
    if result.keys.len() > 1 {
        result.keys.sort_unstable();
        result.keys.dedup();
    }
    Ok(result)
}

/// Returns the encoded values of a field.
fn field_values(field: &IndexField, document: &RawDocument, present: &mut bool) -> Vec<Vec<u8>> {
    let mut values: Vec<Vec<u8>> = Vec::with_capacity(1);
    let mut push = |value: RawBsonRef<'_>| {
        let mut bytes = key::encode(value);
        if field.descending {
            key::complement(&mut bytes);
        }
        values.push(bytes);
    };
    field.path.visit(document, &mut |value| {
        *present |= value.is_some();
        match value {
            None => push(RawBsonRef::Null),
            Some(RawBsonRef::Array(elements)) => {
                let mut empty = true;
                for element in elements.into_iter().flatten() {
                    empty = false;
                    push(element);
                }
                if empty {
                    push(RawBsonRef::Undefined);
                }
            }
            Some(value) => push(value),
        }
        false
    });
    values
}

/// Returns the part of a path that leads to the first array on it, if there is one.
fn array_prefix<'a>(field: &'a IndexField, document: &RawDocument) -> Option<&'a [Box<str>]> {
    let components = field.path.components();
    let mut document = document;
    for (position, component) in components.iter().enumerate() {
        match crate::path::field(document, component) {
            Some(RawBsonRef::Document(inner)) => document = inner,
            Some(RawBsonRef::Array(_)) => return Some(&components[..=position]),
            _ => return None,
        }
    }
    None
}

/// Returns the encoded `_id` at the end of an index entry.
#[inline]
pub(crate) fn id_of<'a>(spec: &IndexSpec, entry: &'a [u8]) -> Result<&'a [u8]> {
    spec.fields.iter().try_fold(entry, |rest, field| key::skip(rest, field.descending))
}

/// Renders the fields of an entry for an error message.
pub(crate) fn describe(spec: &IndexSpec, entry: &[u8]) -> String {
    let mut rest = entry;
    let mut parts = Vec::new();
    for field in &spec.fields {
        let Ok(after) = key::skip(rest, field.descending) else { break };
        let mut bytes = rest[..rest.len() - after.len()].to_vec();
        if field.descending {
            key::complement(&mut bytes);
        }
        let value = key::decode(&bytes).map_or_else(|_| "?".to_owned(), |(value, _)| value.to_string());
        parts.push(format!("{}: {value}", field.path));
        rest = after;
    }
    format!("{{ {} }}", parts.join(", "))
}
