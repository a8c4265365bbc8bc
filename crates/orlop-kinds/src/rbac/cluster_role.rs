//! ClusterRole: a set of permissions in every namespace and of cluster-scoped resources.

use orlop_api::names::NameRule;

use super::role::RoleStrategy;
use crate::{BuiltinKind, StrategyFlags};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    name_rule: NameRule::PathSegment,
    flags: StrategyFlags { allow_create_on_update: true, ..StrategyFlags::BUILTIN },
    strategy: &RoleStrategy { namespaced: false },
    ..BuiltinKind::new("rbac.authorization.k8s.io", "clusterroles")
};
