//! Kinds of `rbac.authorization.k8s.io`.

mod cluster_role;
mod cluster_role_binding;
mod role;
mod role_binding;

use crate::BuiltinKind;

pub(crate) const KINDS: &[BuiltinKind] =
    &[cluster_role::KIND, cluster_role_binding::KIND, role::KIND, role_binding::KIND];
