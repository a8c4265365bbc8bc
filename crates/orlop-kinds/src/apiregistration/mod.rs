//! Kinds of `apiregistration.k8s.io`.

mod api_service;

use crate::BuiltinKind;

pub(crate) const KINDS: &[BuiltinKind] = &[api_service::KIND];
