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
    /// Exactly one key.
    pub fn key(key: impl Into<Bytes>) -> Self {
        let start = key.into();
        let end = Some(successor(&start));
        Self { start, end }
    }

    /// Every key that begins with `prefix`.
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        let start = prefix.into();
        let end = prefix_end(&start);
        Self { start, end }
    }

    /// Every key from `start` up to but without `end`.
    pub fn between(start: impl Into<Bytes>, end: impl Into<Bytes>) -> Self {
        Self { start: start.into(), end: Some(end.into()) }
    }

    /// Every key from `start` on.
    pub fn starting_at(start: impl Into<Bytes>) -> Self {
        Self { start: start.into(), end: None }
    }

    /// Every key there is.
    pub fn all() -> Self {
        Self::starting_at(Bytes::new())
    }

    /// The first key that can be in the range.
    pub fn start(&self) -> &Bytes {
        &self.start
    }

    /// The first key past the range, if it has an end.
    pub fn end(&self) -> Option<&Bytes> {
        self.end.as_ref()
    }

    /// The key, when the range can hold only one.
    pub fn single(&self) -> Option<&Bytes> {
        let end = self.end.as_ref()?;
        (end.len() == self.start.len() + 1 && end.ends_with(&[0]) && end.starts_with(&self.start))
            .then_some(&self.start)
    }

    /// The prefix, when the range holds exactly the keys that begin with one.
    pub fn as_prefix(&self) -> Option<&Bytes> {
        (prefix_end(&self.start) == self.end).then_some(&self.start)
    }

    /// Whether `key` is in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= &self.start[..] && self.end.as_ref().is_none_or(|end| key < &end[..])
    }

    /// Whether no key can be in the range.
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }

    /// What is left of the range after `key`: where the next page begins.
    pub fn after(&self, key: &[u8]) -> Self {
        Self { start: successor(key), end: self.end.clone() }
    }
}

/// The smallest key greater than `key`.
fn successor(key: &[u8]) -> Bytes {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next.into()
}

/// The smallest key greater than every key with this prefix; none when the prefix is empty or all 0xff.
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
    fn a_prefix_holds_its_keys_and_no_neighbour() {
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
    fn a_prefix_without_a_successor_reaches_the_end() {
        assert_eq!(KeyRange::prefix(vec![0xff, 0xff]).end(), None);
        assert_eq!(KeyRange::prefix(vec![b'a', 0xff]).end().unwrap(), "b");
        assert_eq!(KeyRange::prefix("").end(), None);
        assert!(KeyRange::all().contains(b"\xff\xff\xff"));
    }

    #[test]
    fn one_key_is_one_key() {
        let range = KeyRange::key("a");
        assert!(range.contains(b"a"));
        assert!(!range.contains(b"a\0"));
        assert!(!range.contains(b"aa"));
        assert_eq!(range.single().unwrap(), "a");
        assert!(range.after(b"a").is_empty());
    }
}
