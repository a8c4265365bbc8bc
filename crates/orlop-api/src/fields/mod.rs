//! Field selectors: `metadata.name=x,status.phase!=Running`.

mod selector;

pub use selector::{InvalidFieldSelector, Selector, Term, field_text};
