//! Dotted field paths, and the values they reach in a document.

use bson::raw::{RawArray, RawBsonRef, RawDocument};

use crate::{
    error::{Error, Result},
    raw,
};

/// Most components of a path.
const COMPONENTS_MAX: usize = 64;

/// A parsed path. `items.[].sku` and `items.sku` are the same path: arrays are traversed implicitly.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path {
    components: Box<[Box<str>]>,
}

impl Path {
    /// Parses a dotted path.
    pub fn parse(text: &str) -> Result<Self> {
        if text.contains('\0') {
            return Err(Error::invalid("a field path must not contain a zero byte"));
        }
        let components: Box<[Box<str>]> =
            text.split('.').filter(|component| *component != "[]").map(Box::from).collect();
        if components.is_empty() || components.iter().any(|component| component.is_empty()) {
            return Err(Error::invalid(format!("field path {text:?} has an empty component")));
        }
        if components.len() > COMPONENTS_MAX {
            return Err(Error::invalid(format!("a field path has at most {COMPONENTS_MAX} components")));
        }
        Ok(Self { components })
    }

    /// Returns the path's components.
    pub fn components(&self) -> &[Box<str>] {
        &self.components
    }

    /// Returns true if this is `_id`.
    pub fn is_id(&self) -> bool {
        matches!(&*self.components, [only] if &**only == "_id")
    }

    /// Returns true if one of the two paths contains the other.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.components.iter().zip(&other.components).all(|(left, right)| left == right)
    }

    /// Visits every value the path reaches, and `None` where it reaches nothing, until `visit` returns true.
    /// Visits at least once. An array at the end of the path is visited as a whole.
    pub fn visit<'a>(
        &self,
        document: &'a RawDocument,
        visit: &mut dyn FnMut(Option<RawBsonRef<'a>>) -> bool,
    ) -> bool {
        in_document(document, &self.components, visit)
    }
}

impl std::fmt::Display for Path {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.components.join("."))
    }
}

/// Returns the value of a field without parsing the values before it.
pub(crate) fn field<'a>(document: &'a RawDocument, name: &str) -> Option<RawBsonRef<'a>> {
    match raw::find(document.as_bytes(), name.as_bytes()) {
        raw::Found::Value(value) => Some(value),
        raw::Found::Nothing => None,
        // A type that is rare enough to be left to the library.
        raw::Found::Other => document
            .iter_elements()
            .map_while(std::result::Result::ok)
            .find(|element| element.key().as_str() == name)?
            .value()
            .ok(),
    }
}

fn in_document<'a>(
    document: &'a RawDocument,
    path: &[Box<str>],
    visit: &mut dyn FnMut(Option<RawBsonRef<'a>>) -> bool,
) -> bool {
    let Some((first, rest)) = path.split_first() else {
        return visit(Some(RawBsonRef::Document(document)));
    };
    match field(document, first) {
        Some(value) => in_value(value, rest, visit),
        None => visit(None),
    }
}

fn in_value<'a>(
    value: RawBsonRef<'a>,
    path: &[Box<str>],
    visit: &mut dyn FnMut(Option<RawBsonRef<'a>>) -> bool,
) -> bool {
    if path.is_empty() {
        return visit(Some(value));
    }
    match value {
        RawBsonRef::Document(document) => in_document(document, path, visit),
        RawBsonRef::Array(array) => in_array(array, path, visit),
        _ => visit(None),
    }
}

fn in_array<'a>(
    array: &'a RawArray,
    path: &[Box<str>],
    visit: &mut dyn FnMut(Option<RawBsonRef<'a>>) -> bool,
) -> bool {
    let mut visited = false;
    let position = path[0].parse::<usize>().ok();
    for (index, element) in array.into_iter().flatten().enumerate() {
        if position == Some(index) {
            visited = true;
            if in_value(element, &path[1..], visit) {
                return true;
            }
        }
        if let RawBsonRef::Document(document) = element {
            visited = true;
            if in_document(document, path, visit) {
                return true;
            }
        }
    }
    !visited && visit(None)
}
