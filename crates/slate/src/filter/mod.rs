//! Filters: parsed from a document, matched against raw documents without decoding them.

mod matching;
mod parse;

pub(crate) use parse::as_integer;

use bson::{RawBson, raw::RawDocument};

use crate::path::Path;

/// A parsed filter.
#[derive(Debug, Clone)]
pub enum Filter {
    /// Every part matches. Empty: everything matches.
    And(Vec<Filter>),
    /// At least one part matches.
    Or(Vec<Filter>),
    /// No part matches.
    Nor(Vec<Filter>),
    /// A predicate on the values of one path.
    Field(Path, Predicate),
}

/// A predicate on the values that a path reaches.
#[derive(Debug, Clone)]
pub enum Predicate {
    /// `$eq`
    Equal(RawBson),
    /// `$gt`, `$gte`, `$lt`, `$lte`
    Compare(Comparison, RawBson),
    /// `$in`
    In(ValueSet),
    /// `$exists`
    Exists(bool),
    /// `$regex`
    Regex(Box<Pattern>),
    /// `$size`
    Size(usize),
    /// `$type`, as BSON element types
    Type(Vec<u8>),
    /// `$mod`: divisor and remainder
    Modulo(i64, i64),
    /// `$elemMatch` with a filter on documents
    ElementFilter(Box<Filter>),
    /// `$elemMatch` with predicates on the element itself
    Element(Vec<Predicate>),
    /// Every predicate matches (`$all`, several operators under `$not`)
    All(Vec<Predicate>),
    /// `$not`, `$ne`, `$nin`
    Not(Box<Predicate>),
}

/// Direction of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// `$gt`
    Greater,
    /// `$gte`
    GreaterOrEqual,
    /// `$lt`
    Less,
    /// `$lte`
    LessOrEqual,
}

/// The operands of `$in`.
#[derive(Debug, Clone)]
pub struct ValueSet {
    values: Vec<RawBson>,
    /// Encoded values in order, for look-ups in large sets.
    keys: Vec<Vec<u8>>,
    patterns: Vec<Pattern>,
}

impl ValueSet {
    /// Returns the plain values, without patterns.
    pub fn values(&self) -> &[RawBson] {
        &self.values
    }

    /// Returns true if some operand is a regular expression.
    pub fn has_patterns(&self) -> bool {
        !self.patterns.is_empty()
    }
}

/// A compiled regular expression.
#[derive(Debug, Clone)]
pub struct Pattern {
    regex: regex::Regex,
    /// Literal that every match begins with, if the pattern is anchored.
    prefix: Option<String>,
}

impl Pattern {
    /// Returns the literal that every match begins with, if there is one.
    pub fn prefix(&self) -> Option<&str> {
        self.prefix.as_deref()
    }
}

impl Filter {
    /// Returns true if every document matches.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::And(parts) if parts.is_empty())
    }

    /// Matches a document.
    pub fn matches(&self, document: &RawDocument) -> bool {
        matching::matches(self, document)
    }
}
