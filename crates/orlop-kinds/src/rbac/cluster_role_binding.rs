//! ClusterRoleBinding: grants a ClusterRole in every namespace.

use orlop_api::names::NameRule;

use super::role_binding::{self, RoleBindingStrategy};
use crate::{BuiltinKind, StrategyFlags};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    name_rule: NameRule::PathSegment,
    flags: StrategyFlags { allow_create_on_update: true, ..StrategyFlags::BUILTIN },
    columns: &role_binding::COLUMNS,
    strategy: &RoleBindingStrategy { namespaced: false },
    ..BuiltinKind::new("rbac.authorization.k8s.io", "clusterrolebindings")
};
