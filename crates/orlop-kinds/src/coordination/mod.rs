//! Kinds of `coordination.k8s.io`.

mod lease;

use crate::BuiltinKind;

pub(crate) const KINDS: &[BuiltinKind] = &[lease::KIND];
