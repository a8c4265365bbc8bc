//! Sets of completion indexes, written as `0,2-4`. Pure.

use std::{collections::BTreeSet, fmt};

/// A set of indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Indexes(BTreeSet<i32>);

impl Indexes {
    /// Parses indexes below `completions`. What is malformed is left out: this controller wrote it.
    pub(super) fn parse(text: &str, completions: i32) -> Self {
        let mut indexes = BTreeSet::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            if let (Ok(first), Ok(last)) = (first.parse::<i32>(), last.parse::<i32>()) {
                indexes.extend(first.max(0)..=last.min(completions.saturating_sub(1)));
            }
        }
        Self(indexes)
    }

    pub(super) fn insert(&mut self, index: i32) {
        self.0.insert(index);
    }

    pub(super) fn contains(&self, index: i32) -> bool {
        self.0.contains(&index)
    }

    pub(super) fn len(&self) -> i32 {
        i32::try_from(self.0.len()).unwrap_or(i32::MAX)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of indexes that are in both.
    pub(super) fn common(&self, other: &Self) -> i32 {
        i32::try_from(self.0.intersection(&other.0).count()).unwrap_or(i32::MAX)
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut runs: Vec<(i32, i32)> = Vec::new();
        for index in &self.0 {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == *index => *last = *index,
                _ => runs.push((*index, *index)),
            }
        }
        for (position, (first, last)) in runs.iter().enumerate() {
            let comma = if position == 0 { "" } else { "," };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_compressed_and_parsed_again() {
        for text in ["", "0", "0,2-4", "1,2", "0,3,5-9"] {
            assert_eq!(Indexes::parse(text, 10).to_string(), text);
        }
        assert_eq!(Indexes::parse("0-100", 3).to_string(), "0-2");
        assert_eq!(Indexes::parse("x,2", 3).to_string(), "2");
    }
}
