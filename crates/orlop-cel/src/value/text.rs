//! Strings that borrow from the document or the program where they can.

use std::ops::Deref;
use std::sync::Arc;

/// A string value.
#[derive(Clone, Debug)]
pub enum Text<'a> {
    /// Part of the document or of the program.
    Borrowed(&'a str),
    /// Made by the expression.
    Shared(Arc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }
}

impl From<&str> for Text<'_> {
    fn from(text: &str) -> Self {
        Self::Shared(text.into())
    }
}

impl From<String> for Text<'_> {
    fn from(text: String) -> Self {
        Self::Shared(text.into())
    }
}
