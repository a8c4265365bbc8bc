//! Ranges of keys: one key, a prefix, a half-open interval, or everything from a key on.

use bytes::Bytes;

/// A contiguous set of keys in byte order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyRange {
    start: Bytes,
    /// `None` reaches to the end of the key space.
    end: Option<Bytes>,
}

impl KeyRange {
    /// Creates a range of exactly one key.
    pub fn key(key: impl Into<Bytes>) -> Self {
        let start = key.into();
        let end = Some(successor(&start));
        Self { start, end }
    }

    /// Creates a range of every key that begins with `prefix`.
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        let start = prefix.into();
        let end = prefix_end(&start);
        Self { start, end }
    }

    /// Creates a range from `start` (inclusive) to `end` (exclusive).
    pub fn between(start: impl Into<Bytes>, end: impl Into<Bytes>) -> Self {
        Self { start: start.into(), end: Some(end.into()) }
    }

    /// Creates a range from `start` to the end of the key space.
    pub fn starting_at(start: impl Into<Bytes>) -> Self {
        Self { start: start.into(), end: None }
    }

    /// Creates a range of every key.
    pub fn all() -> Self {
        Self::starting_at(Bytes::new())
    }

    /// Returns the first key that can be in the range.
    pub fn start(&self) -> &Bytes {
        &self.start
    }

    /// Returns the first key past the range, if it has an end.
    pub fn end(&self) -> Option<&Bytes> {
        self.end.as_ref()
    }

    /// Returns the key of a range that can hold only one.
    pub fn single(&self) -> Option<&Bytes> {
        let end = self.end.as_ref()?;
        (end.len() == self.start.len() + 1 && end.ends_with(&[0]) && end.starts_with(&self.start))
            .then_some(&self.start)
    }

    /// Returns the prefix of a range that holds exactly the keys beginning with it.
    pub fn as_prefix(&self) -> Option<&Bytes> {
        (prefix_end(&self.start) == self.end).then_some(&self.start)
    }

    /// Returns whether `key` is in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= &self.start[..] && self.end.as_ref().is_none_or(|end| key < &end[..])
    }

    /// Returns whether no key can be in the range.
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }

    /// Returns the rest of the range after `key`: the range of the next page.
    pub fn after(&self, key: &[u8]) -> Self {
        Self { start: successor(key), end: self.end.clone() }
    }
}

/// Returns the smallest key greater than `key`.
fn successor(key: &[u8]) -> Bytes {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next.into()
}

/// Returns the smallest key greater than every key with this prefix; none if the prefix is empty or all 0xff.
fn prefix_end(prefix: &[u8]) -> Option<Bytes> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_range_contains_exactly_its_keys() {
        let range = KeyRange::prefix("/pods/a/");
        assert!(range.contains(b"/pods/a/"));
        assert!(range.contains(b"/pods/a/x"));
        assert!(range.contains(b"/pods/a/\xff\xff"));
        assert!(!range.contains(b"/pods/a"));
        assert!(!range.contains(b"/pods/a0"));
        assert_eq!(range.as_prefix().unwrap(), "/pods/a/");
        assert_eq!(range.single(), None);
    }

    #[test]
    fn prefix_without_successor_is_unbounded() {
        assert_eq!(KeyRange::prefix(vec![0xff, 0xff]).end(), None);
        assert_eq!(KeyRange::prefix(vec![b'a', 0xff]).end().unwrap(), "b");
        assert_eq!(KeyRange::prefix("").end(), None);
        assert!(KeyRange::all().contains(b"\xff\xff\xff"));
    }

    #[test]
    fn single_key_range_contains_one_key() {
        let range = KeyRange::key("a");
        assert!(range.contains(b"a"));
        assert!(!range.contains(b"a\0"));
        assert!(!range.contains(b"aa"));
        assert_eq!(range.single().unwrap(), "a");
        assert!(range.after(b"a").is_empty());
    }
}
