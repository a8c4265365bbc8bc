//! Query plans: which part of which index a query reads, and what is left to filter and sort.

mod bounds;
mod choose;
mod ranges;

use bson::{Bson, Document, doc};

pub(crate) use choose::choose;

use crate::{
    catalog::{Collection, ID_INDEX},
    filter::Filter,
    store::{Direction, Range},
};

/// Way to find candidate documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Access {
    /// No document can match.
    Nothing,
    /// Documents by `_id`, in ranges; one range over everything is a collection scan.
    Documents { ranges: Vec<Range>, direction: Direction },
    /// Entries of the index at this position of the collection.
    Index { position: usize, ranges: Vec<Range>, direction: Direction },
    /// Documents that all inputs have, in the order of `_id`.
    Intersection(Vec<IntersectionInput>),
    /// Documents of any part, each once.
    Union(Vec<Access>),
}

/// Entries of an index that begin with a prefix and differ in `_id` only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IntersectionInput {
    /// Position of the index in the collection.
    pub(crate) position: usize,
    /// Encoded values of all of its fields.
    pub(crate) prefix: Vec<u8>,
}

/// A chosen plan.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) access: Access,
    /// Candidates come in the order that the query asks for.
    pub(crate) sorted: bool,
    /// Every candidate matches; documents need not be read to know.
    pub(crate) exact: bool,
    /// Part of the filter that candidates may fail, if it is not all of it.
    pub(crate) residual: Option<Filter>,
}

impl Access {
    pub(crate) fn scan(direction: Direction) -> Self {
        Self::Documents { ranges: vec![Range::all()], direction }
    }

    fn describe(&self, collection: &Collection) -> Document {
        let backward = |direction: &Direction| *direction == Direction::Backward;
        match self {
            Self::Nothing => doc! { "stage": "EOF" },
            Self::Documents { ranges, direction } if *ranges == [Range::all()] => {
                doc! { "stage": "COLLSCAN", "direction": if backward(direction) { "backward" } else { "forward" } }
            }
            Self::Documents { ranges, direction } => doc! {
                "stage": "IDSCAN",
                "indexName": ID_INDEX,
                "ranges": ranges.len() as i64,
                "direction": if backward(direction) { "backward" } else { "forward" },
            },
            Self::Index { position, ranges, direction } => {
                let Some(index) = collection.indexes.get(*position) else { return Document::new() };
                let spec = index.spec.to_document();
                doc! {
                    "stage": "IXSCAN",
                    "indexName": &index.spec.name,
                    "keyPattern": spec.get_document("key").cloned().unwrap_or_default(),
                    "isMultiKey": index.multikey,
                    "ranges": ranges.len() as i64,
                    "direction": if backward(direction) { "backward" } else { "forward" },
                }
            }
            Self::Intersection(inputs) => {
                let names = inputs.iter().filter_map(|input| collection.indexes.get(input.position));
                let parts: Vec<Bson> = names
                    .map(|index| doc! { "stage": "IXSCAN", "indexName": &index.spec.name }.into())
                    .collect();
                doc! { "stage": "AND_SORTED", "inputStages": parts }
            }
            Self::Union(parts) => {
                let parts: Vec<Bson> = parts.iter().map(|part| part.describe(collection).into()).collect();
                doc! { "stage": "OR", "inputStages": parts }
            }
        }
    }
}

impl Plan {
    /// Describes the plan for `explain`.
    pub(crate) fn describe(&self, collection: &Collection, sorts: bool) -> Document {
        let input = self.access.describe(collection);
        let fetch = match &self.access {
            Access::Index { .. } | Access::Intersection(_) | Access::Union(_) => {
                doc! { "stage": "FETCH", "inputStage": input }
            }
            _ => input,
        };
        if sorts && !self.sorted {
            doc! { "stage": "SORT", "inputStage": fetch }
        } else {
            fetch
        }
    }
}
