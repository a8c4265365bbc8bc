//! Tests through the crate's public interface.

mod definitions;
mod expressions;
mod names;
mod objects;
mod projects;
mod properties;
mod reviews;
mod rules;
mod serving;
mod widgets;
