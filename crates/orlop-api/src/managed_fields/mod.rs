//! `metadata.managedFields`: ownership of fields.
//!
//! - [`PathElement`]: field name, list key, set value or index;
//! - [`Set`]: a sorted tree of paths with set algebra;
//! - [`Filter`]: fields that an endpoint may own;
//! - [`fields_v1`]: encoding of a set;
//! - [`Fields`]: an encoded set with set algebra;
//! - [`entries`]: the list of managers.

pub mod entries;
mod fields;
pub mod fields_v1;
mod filter;
mod path_element;
mod set;

pub use entries::{ManagedFields, Manager, Operation, VersionedSet};
pub use fields::Fields;
pub use filter::Filter;
pub use path_element::{OrderedValue, Path, PathElement};
pub use set::{Node, Set};
