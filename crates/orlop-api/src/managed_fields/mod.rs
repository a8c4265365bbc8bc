//! `metadata.managedFields`: who owns which fields.
//!
//! - [`PathElement`]: one step, by field name, by list key, by set value or by index;
//! - [`Set`]: a sorted tree of paths with the algebra ownership needs;
//! - [`Filter`]: what of a set an endpoint lets its writers own;
//! - [`fields_v1`]: a set as it is written in an object;
//! - [`Fields`]: a set worked on as it is written;
//! - [`entries`]: the list of managers, decoded and encoded.

pub mod entries;
mod fields;
pub mod fields_v1;
mod filter;
mod path_element;
mod set;

pub use entries::{ManagedFields, Manager, Operation, VersionedSet};
pub use fields::Fields;
pub use filter::Filter;
pub use path_element::{Item, Path, PathElement};
pub use set::{Node, Set};
