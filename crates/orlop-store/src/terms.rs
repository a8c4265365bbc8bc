//! Index terms and the filters over them.
//!
//! The store does not interpret values, so a put carries the (field, value) pairs to index it by. The terms are stored
//! with the version in one compact encoding. The index, filters on past revisions and filtered watches read the same
//! bytes, and none of them decodes the value.

use std::collections::BTreeSet;

use bytes::{BufMut, Bytes, BytesMut};

use crate::error::{Error, Result};

/// The (field, value) pairs that a version is indexed by. A field may have several values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms(Bytes);

impl Terms {
    /// Returns the empty set.
    pub const fn none() -> Self {
        Self(Bytes::new())
    }

    /// Builds the set from pairs in any order; repeated pairs count once.
    pub fn new<F, V>(pairs: impl IntoIterator<Item = (F, V)>) -> Self
    where
        F: Into<String>,
        V: Into<String>,
    {
        let mut sorted: Vec<(String, String)> =
            pairs.into_iter().map(|(f, v)| (f.into(), v.into())).collect();
        sorted.sort_unstable();
        sorted.dedup();
        let length = sorted.iter().map(|(field, value)| 8 + field.len() + value.len()).sum();
        let mut encoded = BytesMut::with_capacity(length);
        for (field, value) in &sorted {
            for part in [field, value] {
                encoded.put_u32(part.len() as u32);
                encoded.put_slice(part.as_bytes());
            }
        }
        Self(encoded.freeze())
    }

    /// Returns the pairs, sorted by field and then value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || Some((take(&mut rest)?, take(&mut rest)?)))
    }

    /// Returns the values of one field.
    pub fn values<'a>(&'a self, field: &'a str) -> impl Iterator<Item = &'a str> {
        self.iter().filter(move |(name, _)| *name == field).map(|(_, value)| value)
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the pairs of `self` that `other` lacks.
    pub fn minus<'a>(&'a self, other: &'a Terms) -> impl Iterator<Item = (&'a str, &'a str)> {
        let excluded: BTreeSet<_> = other.iter().collect();
        self.iter().filter(move |pair| !excluded.contains(pair))
    }

    /// Returns the stored encoding.
    pub(crate) fn encoded(&self) -> &Bytes {
        &self.0
    }

    /// Decodes the stored encoding; `None` if it is damaged.
    pub(crate) fn decode(encoded: Bytes) -> Option<Self> {
        let mut rest = &encoded[..];
        while !rest.is_empty() {
            take(&mut rest)?;
            take(&mut rest)?;
        }
        Some(Self(encoded))
    }
}

/// Splits one length-prefixed string off the front.
fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let (length, tail) = rest.split_first_chunk::<4>()?;
    let (text, tail) = tail.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    *rest = tail;
    std::str::from_utf8(text).ok()
}

/// One condition on a version's terms.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Requirement {
    /// The field has one of these values.
    In(String, Vec<String>),
    /// The field has none of these values; a version without the field matches.
    NotIn(String, Vec<String>),
    /// The field has some value.
    Exists(String),
    /// The field has no value.
    Absent(String),
}

impl Requirement {
    /// Requires this value among the field's values.
    pub fn equals(field: impl Into<String>, value: impl Into<String>) -> Self {
        Self::In(field.into(), vec![value.into()])
    }

    /// Requires this value not to be among the field's values.
    pub fn not_equals(field: impl Into<String>, value: impl Into<String>) -> Self {
        Self::NotIn(field.into(), vec![value.into()])
    }

    /// Returns the field of the condition.
    pub fn field(&self) -> &str {
        match self {
            Self::In(field, _) | Self::NotIn(field, _) | Self::Exists(field) | Self::Absent(field) => field,
        }
    }

    /// Returns whether a version with these terms satisfies the condition.
    pub fn matches(&self, terms: &Terms) -> bool {
        let one_of =
            |field: &str, wanted: &[String]| terms.values(field).any(|v| wanted.iter().any(|w| w == v));
        match self {
            Self::In(field, wanted) => one_of(field, wanted),
            Self::NotIn(field, unwanted) => !one_of(field, unwanted),
            Self::Exists(field) => terms.values(field).next().is_some(),
            Self::Absent(field) => terms.values(field).next().is_none(),
        }
    }
}

/// Conditions that must all hold. The empty filter matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Filter(pub Vec<Requirement>);

impl Filter {
    /// Matches everything.
    pub const fn everything() -> Self {
        Self(Vec::new())
    }

    /// Returns whether the filter matches everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether a version with these terms satisfies every condition.
    pub fn matches(&self, terms: &Terms) -> bool {
        self.0.iter().all(|requirement| requirement.matches(terms))
    }
}

/// Validates the terms of a put.
pub(crate) fn check_terms(terms: &Terms, limit_bytes: usize) -> Result<()> {
    let size = terms.encoded().len();
    if size > limit_bytes {
        return Err(Error::TooLarge {
            what: "the set of index terms",
            size: size as u64,
            limit: limit_bytes as u64,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_round_trip_sorted_and_deduplicated() {
        let terms = Terms::new([("b", "2"), ("a", ""), ("b", "1"), ("b", "2")]);
        assert_eq!(terms.iter().collect::<Vec<_>>(), [("a", ""), ("b", "1"), ("b", "2")]);
        assert_eq!(Terms::decode(terms.encoded().clone()), Some(terms));
    }

    #[test]
    fn damaged_encoding_is_detected() {
        let whole = Terms::new([("field", "value")]).encoded().clone();
        for length in 1..whole.len() {
            assert_eq!(Terms::decode(whole.slice(..length)), None, "cut to {length} bytes");
        }
        assert_eq!(Terms::decode(Bytes::from_static(b"\0\0\0\x01\xff\0\0\0\0")), None);
    }

    #[test]
    fn requirements_match_like_label_selectors() {
        let terms = Terms::new([("app", "web"), ("owner", "1"), ("owner", "2")]);
        let matches = |requirement: Requirement| requirement.matches(&terms);
        assert!(matches(Requirement::equals("app", "web")));
        assert!(matches(Requirement::equals("owner", "2")));
        assert!(!matches(Requirement::equals("app", "db")));
        assert!(matches(Requirement::not_equals("app", "db")));
        assert!(matches(Requirement::not_equals("missing", "x")), "absent fields differ from every value");
        assert!(!matches(Requirement::NotIn("owner".into(), vec!["2".into(), "3".into()])));
        assert!(matches(Requirement::Exists("owner".into())));
        assert!(matches(Requirement::Absent("missing".into())));
        assert!(!matches(Requirement::Absent("app".into())));
    }

    #[test]
    fn minus_returns_the_difference() {
        let old = Terms::new([("a", "1"), ("b", "2")]);
        let new = Terms::new([("b", "2"), ("c", "3")]);
        assert_eq!(old.minus(&new).collect::<Vec<_>>(), [("a", "1")]);
        assert_eq!(new.minus(&old).collect::<Vec<_>>(), [("c", "3")]);
    }
}
