//! Kinds of `apiextensions.k8s.io`.

mod custom_resource_definition;

use crate::BuiltinKind;

pub use custom_resource_definition::{FINALIZER, is_finalizing, set_terminating};

pub(crate) const KINDS: &[BuiltinKind] = &[custom_resource_definition::KIND];
