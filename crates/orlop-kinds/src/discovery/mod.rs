//! Kinds of `discovery.k8s.io`.

mod endpoint_slice;

use crate::BuiltinKind;

pub(crate) const KINDS: &[BuiltinKind] = &[endpoint_slice::KIND];
