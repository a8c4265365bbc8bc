//! The text of an expression, addressed by character.
//!
//! CEL counts columns in Unicode characters, not bytes, and error messages show the offending line; both need the
//! line table kept here. Nothing here knows the grammar.

use std::sync::Arc;

/// The largest expression accepted, in characters. The same figure as cel-go's.
pub(crate) const EXPRESSION_CHARS_MAX: usize = 100_000;

/// Lines longer than this are not echoed in an error message.
const SNIPPET_CHARS_MAX: usize = 16_384;

/// An expression's text with its line starts.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    text: Arc<str>,
    /// Character offsets at which each line begins.
    lines: Arc<[u32]>,
}

/// A place in a [`Source`]: line from 1, column from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// Line, counted from 1; 0 means that the error belongs to no place.
    pub line: u32,
    /// Column in characters, counted from 0.
    pub column: u32,
}

impl Source {
    /// Reads the line table of `text`.
    pub(crate) fn new(text: &str) -> Self {
        let mut lines = vec![0];
        for (at, c) in text.chars().enumerate() {
            if c == '\n' {
                lines.push(at as u32 + 1);
            }
        }
        Self { text: text.into(), lines: lines.into() }
    }

    /// The whole text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Line and column of a character offset.
    pub(crate) fn location(&self, offset: u32) -> Location {
        let line = self.lines.partition_point(|start| *start <= offset).max(1);
        let start = self.lines.get(line - 1).copied().unwrap_or(0);
        Location { line: line as u32, column: offset - start }
    }

    /// The text of a line (from 1) without its line break, unless it is absurdly long.
    pub(crate) fn snippet(&self, line: u32) -> Option<&str> {
        let text = self.text.split('\n').nth(usize::try_from(line).ok()?.checked_sub(1)?)?;
        (text.chars().count() <= SNIPPET_CHARS_MAX).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_counted_in_characters() {
        let source = Source::new("a\n é + b");
        assert_eq!(source.location(0), Location { line: 1, column: 0 });
        assert_eq!(source.location(5), Location { line: 2, column: 3 });
        assert_eq!(source.snippet(2), Some(" é + b"));
        assert_eq!(source.snippet(3), None);
    }
}
