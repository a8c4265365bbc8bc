//! Kinds of `authentication.k8s.io`. They are requests that the server answers at once; nothing is stored.

use crate::BuiltinKind;

pub(crate) const KINDS: &[BuiltinKind] = &[
    BuiltinKind::new("authentication.k8s.io", "selfsubjectreviews"),
    BuiltinKind::new("authentication.k8s.io", "tokenreviews"),
];
