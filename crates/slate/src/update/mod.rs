//! Updates: parsed from operators, applied to documents.

mod apply;
mod array;
mod number;
mod parse;

use bson::{Bson, Document};

use crate::{filter::Filter, path::Path};

/// A parsed update.
#[derive(Debug, Clone)]
pub enum Update {
    /// Replaces the whole document except its `_id`.
    Replace(Document),
    /// Applies operators in order.
    Operators(Vec<(Path, Operator)>),
    /// Sets the given top-level fields and keeps the others.
    Merge(Document),
}

/// An operator on one path.
#[derive(Debug, Clone)]
pub enum Operator {
    /// `$set`
    Set(Bson),
    /// `$setOnInsert`
    SetOnInsert(Bson),
    /// `$unset`
    Unset,
    /// `$inc`
    Increment(Bson),
    /// `$mul`
    Multiply(Bson),
    /// `$min`
    Min(Bson),
    /// `$max`
    Max(Bson),
    /// `$rename`
    Rename(Path),
    /// `$push`, `$lpush`
    Push(Push),
    /// `$addToSet`
    AddToSet(Vec<Bson>),
    /// `$pop`: from the front, or from the back
    Pop {
        /// Removes the first element instead of the last.
        front: bool,
    },
    /// `$pull`
    Pull(Condition),
    /// `$pullAll`
    PullAll(Vec<Bson>),
    /// `$currentDate`
    CurrentDate,
}

/// Arguments of `$push`.
#[derive(Debug, Clone, Default)]
pub struct Push {
    values: Vec<Bson>,
    position: Option<i64>,
    slice: Option<i64>,
    sort: Option<Document>,
    sort_descending: Option<bool>,
}

/// Elements that `$pull` removes.
#[derive(Debug, Clone)]
pub enum Condition {
    /// Elements that equal a value.
    Equal(Bson),
    /// Documents that match a filter.
    Matches(Filter),
    /// Elements that satisfy operators, tested as the field `e` of a document.
    Satisfies(Filter),
}
