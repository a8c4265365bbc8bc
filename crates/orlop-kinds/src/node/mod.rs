//! Kinds of `node.k8s.io`.

mod runtime_class;

use crate::BuiltinKind;

pub(crate) const KINDS: &[BuiltinKind] = &[runtime_class::KIND];
