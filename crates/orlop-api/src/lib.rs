//! Kubernetes' API machinery without I/O.
//!
//! All functions are pure: no clock, no sockets, no
//! threads, no async. Objects are [`serde_json::Value`]s; every input
//! yields a value or a [`status::Status`] with the code, reason and
//! message of Kubernetes.
//!
//! Invariants:
//! - no input panics or recurses without bound
//!   ([`decode::DEPTH_MAX`] is checked by decoders and patches);
//! - encodings are deterministic: maps are ordered, sets are sorted;
//! - one [`schema::Schema`] type serves built-in kinds and custom resources.

pub mod duration;
pub mod field_error;
pub mod go_text;
pub mod group_version;
pub mod names;
pub mod status;
pub mod time;
pub mod user;
pub mod warnings;

pub mod apply;
pub mod continue_token;
pub mod decode;
pub mod fields;
pub mod json_path;
pub mod key_order;
pub mod labels;
pub mod managed_fields;
pub mod object_meta;
pub mod options;
pub mod patch;
pub mod protobuf;
pub mod quantity;
pub mod query;
pub mod schema;
pub mod table;
