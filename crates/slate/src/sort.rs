//! Sort orders.

use bson::{
    Bson, Document,
    raw::{RawBsonRef, RawDocument},
};

use crate::{
    catalog::IndexField,
    error::{Error, Result},
    key,
    path::Path,
    store::Direction,
};

/// Most fields of a sort.
const FIELDS_MAX: usize = 32;

/// An order of documents. Empty: any order.
#[derive(Debug, Clone, Default)]
pub struct Sort {
    fields: Vec<(Path, bool)>,
}

impl Sort {
    /// Parses `{path: 1 | -1, ...}`.
    pub fn parse(document: &Document) -> Result<Self> {
        let mut fields = Vec::with_capacity(document.len());
        for (path, direction) in document {
            let descending = match crate::filter_integer(direction) {
                Some(1) => false,
                Some(-1) => true,
                _ => return Err(Error::invalid(format!("sort direction of {path:?} must be 1 or -1"))),
            };
            fields.push((Path::parse(path)?, descending));
        }
        if fields.len() > FIELDS_MAX {
            return Err(Error::invalid(format!("a sort has at most {FIELDS_MAX} fields")));
        }
        Ok(Self { fields })
    }

    /// Returns true if any order will do.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Encodes a document's place in the order: places compare as bytes.
    pub fn key(&self, document: &RawDocument) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16 * self.fields.len());
        for (path, descending) in &self.fields {
            append_extreme(&mut bytes, document, path, *descending);
        }
        bytes
    }

    /// Returns the direction of a scan by `_id` that yields this order.
    pub(crate) fn id_direction(&self) -> Option<Direction> {
        match self.fields.as_slice() {
            [(path, descending), ..] if path.is_id() => Some(direction(*descending)),
            _ => None,
        }
    }

    /// Returns the direction of a scan of an index that yields this order, when the first `fixed` fields of
    /// the index have one value each.
    pub(crate) fn index_direction(&self, fields: &[IndexField], fixed: usize) -> Option<Direction> {
        if self.is_empty() {
            return None;
        }
        let is_fixed = |path: &Path| fields[..fixed].iter().any(|field| field.path == *path);
        let mut rest = fields[fixed..].iter();
        let mut result = None;
        for (path, descending) in self.fields.iter().filter(|(path, _)| !is_fixed(path)) {
            let field = rest.next().filter(|field| field.path == *path)?;
            let required = direction(field.descending != *descending);
            if *result.get_or_insert(required) != required {
                return None;
            }
        }
        Some(result.unwrap_or(Direction::Forward))
    }
}

fn direction(backward: bool) -> Direction {
    if backward { Direction::Backward } else { Direction::Forward }
}

/// Appends the least value of a path, or the greatest, complemented, if descending. An array sorts by its
/// elements, a missing field as null.
fn append_extreme(bytes: &mut Vec<u8>, document: &RawDocument, path: &Path, descending: bool) {
    let mut extreme: Option<RawBsonRef<'_>> = None;
    path.visit(document, &mut |value| {
        let mut take = |value| {
            let better = extreme.is_none_or(|present| {
                let order = key::compare(value, present);
                if descending { order.is_gt() } else { order.is_lt() }
            });
            if better {
                extreme = Some(value);
            }
        };
        match value {
            None => take(RawBsonRef::Null),
            Some(RawBsonRef::Array(array)) => {
                let mut empty = true;
                for element in array.into_iter().flatten() {
                    empty = false;
                    take(element);
                }
                if empty {
                    take(RawBsonRef::Undefined);
                }
            }
            Some(value) => take(value),
        }
        false
    });
    let from = bytes.len();
    key::encode_to(bytes, extreme.unwrap_or(RawBsonRef::Null));
    if descending {
        key::complement(&mut bytes[from..]);
    }
}

/// Compares decoded values.
pub(crate) fn compare_bson(left: &Bson, right: &Bson) -> std::cmp::Ordering {
    key_of(left).cmp(&key_of(right))
}

/// Encodes a decoded value.
pub(crate) fn key_of(value: &Bson) -> Vec<u8> {
    match bson::RawBson::try_from(value.clone()) {
        Ok(raw) => key::encode(raw.as_raw_bson_ref()),
        // A name with a zero byte cannot be BSON; such a value equals only its like.
        Err(_) => Vec::new(),
    }
}
