//! Kinds of `authorization.k8s.io`. They are requests that the server answers at once; nothing is stored.

use crate::BuiltinKind;

pub(crate) const KINDS: &[BuiltinKind] = &[
    BuiltinKind::new("authorization.k8s.io", "localsubjectaccessreviews"),
    BuiltinKind::new("authorization.k8s.io", "selfsubjectaccessreviews"),
    BuiltinKind::new("authorization.k8s.io", "selfsubjectrulesreviews"),
    BuiltinKind::new("authorization.k8s.io", "subjectaccessreviews"),
];
