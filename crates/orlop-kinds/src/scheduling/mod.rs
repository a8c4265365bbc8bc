//! Kinds of `scheduling.k8s.io`.

mod priority_class;

use crate::BuiltinKind;

pub(crate) const KINDS: &[BuiltinKind] = &[priority_class::KIND];
