//! Projections: which fields of a document a query returns.

use bson::{
    Bson, Document, RawArrayBuf, RawDocumentBuf,
    raw::{RawArray, RawBsonRef, RawDocument},
};

use crate::{
    error::{Error, Result},
    path::Path,
};

/// A parsed projection.
#[derive(Debug, Clone)]
pub struct Projection {
    /// Keep what is listed, or drop it.
    include: bool,
    fields: Node,
    id: bool,
}

/// Listed fields, by component.
#[derive(Debug, Clone, Default)]
struct Node {
    children: Vec<(Box<str>, Node)>,
    /// The path ends here.
    listed: bool,
}

impl Projection {
    /// Parses `{path: 1}` or `{path: 0}`. An empty document is no projection.
    pub fn parse(document: &Document) -> Result<Option<Self>> {
        if document.is_empty() {
            return Ok(None);
        }
        let mut include = None;
        let mut id = None;
        let mut fields = Node::default();
        for (name, value) in document {
            let included = match value {
                Bson::Boolean(included) => *included,
                value => match crate::filter_integer(value) {
                    Some(number) => number != 0,
                    None => {
                        return Err(Error::invalid(format!("projection of {name:?} must be 0 or 1")));
                    }
                },
            };
            if name == "_id" {
                id = Some(included);
                continue;
            }
            if *include.get_or_insert(included) != included {
                return Err(Error::invalid("a projection cannot mix inclusion and exclusion"));
            }
            if name.split('.').any(|component| component.starts_with('$')) {
                return Err(Error::invalid(format!("positional projections are not supported: {name:?}")));
            }
            fields.insert(Path::parse(name)?.components());
        }
        // `{_id: 1}` alone includes, `{_id: 0}` alone excludes.
        let include = include.unwrap_or(id == Some(true));
        Ok(Some(Self { include, fields, id: id.unwrap_or(true) }))
    }

    /// Projects a document.
    pub fn apply(&self, document: &RawDocument) -> RawDocumentBuf {
        self.project(&self.fields, document, Some(self.id))
    }

    /// `id` decides about `_id`, at the top level.
    fn project(&self, node: &Node, document: &RawDocument, id: Option<bool>) -> RawDocumentBuf {
        let mut result = RawDocumentBuf::new();
        for (name, value) in document.iter().flatten() {
            if let Some(included) = id
                && name.as_str() == "_id"
            {
                if included {
                    result.append(name, value);
                }
                continue;
            }
            match node.child(name.as_str()) {
                Some(node) if node.listed && self.include => result.append(name, value),
                Some(node) if node.listed => {}
                Some(node) => match value {
                    RawBsonRef::Document(inner) => result.append(name, self.project(node, inner, None)),
                    RawBsonRef::Array(inner) => result.append(name, self.project_array(node, inner)),
                    value if !self.include => result.append(name, value),
                    _ => {}
                },
                None if !self.include => result.append(name, value),
                None => {}
            }
        }
        result
    }

    fn project_array(&self, node: &Node, array: &RawArray) -> RawArrayBuf {
        let mut result = RawArrayBuf::new();
        for element in array.into_iter().flatten() {
            match element {
                RawBsonRef::Document(inner) => result.push(self.project(node, inner, None)),
                RawBsonRef::Array(inner) => result.push(self.project_array(node, inner)),
                other if !self.include => result.push(other),
                _ => {}
            }
        }
        result
    }
}

impl Node {
    fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|(child, _)| **child == *name).map(|(_, node)| node)
    }

    fn insert(&mut self, path: &[Box<str>]) {
        let Some((first, rest)) = path.split_first() else {
            self.listed = true;
            return;
        };
        let position = match self.children.iter().position(|(name, _)| name == first) {
            Some(position) => position,
            None => {
                self.children.push((first.clone(), Self::default()));
                self.children.len() - 1
            }
        };
        self.children[position].1.insert(rest);
    }
}
