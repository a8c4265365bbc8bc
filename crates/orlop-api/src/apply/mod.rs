//! Server-side apply and field management.
//!
//! [`FieldManager`] is the entry point: [`FieldManager::apply`] merges a
//! configuration into a live object, [`FieldManager::update`] tracks any other
//! write. The modules follow structured-merge-diff (SMD):
//!
//! - [`typed`]: typed values, by schema or deduced;
//! - `to_field_set`: the field set of an object;
//! - `compare`: fields added, modified and removed between two objects;
//! - `merge`: merge of two objects;
//! - `remove`: removal of fields; `atomics`: atomic fields;
//! - `reconcile`: field sets of older schemas;
//! - `updater`: ownership; `conflicts`: conflict errors.

mod atomics;
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

pub use atomics::atomic_paths;
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
