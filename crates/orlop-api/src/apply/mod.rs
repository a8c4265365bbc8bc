//! Server-side apply, and the tracking of every other write.
//!
//! [`FieldManager`] is the whole of it for a caller: [`FieldManager::apply`] merges a
//! configuration into a live object, [`FieldManager::update`] records what any other
//! write changed. Underneath, each file walks objects along their types:
//!
//! - [`typed`]: what a value is, by schema, or deduced where there is none;
//! - `to_field_set`: the fields an object has;
//! - `compare`: the fields added, changed, removed between two objects;
//! - `merge`: one object over another;
//! - `remove`: an object without some fields;
//! - `reconcile`: sets written under an older schema;
//! - `updater`: the algorithm over managers; `conflicts`: what it says when it cannot.

mod compare;
mod conflicts;
mod field_manager;
mod last_applied;
mod merge;
mod reconcile;
mod remove;
mod scale;
mod to_field_set;
pub mod typed;
mod updater;

pub use compare::{Comparison, compare};
pub use conflicts::{Conflict, conflict_status};
pub use field_manager::{Applied, FieldManager, UPDATE_MANAGERS_MAX};
pub use last_applied::LAST_APPLIED_ANNOTATION;
pub use merge::merge;
pub use remove::remove_items;
pub use scale::ScaleHandler;
pub use to_field_set::to_field_set;
pub use typed::{TypeErrors, TypeRef, validate};
pub use updater::{ConversionError, SingleVersion, VersionConverter};
