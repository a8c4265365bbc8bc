//! ResourceClaimTemplate: makes a ResourceClaim for each pod.

use super::resource_claim::ResourceClaim;
use crate::{BuiltinKind, StrategyFlags, printer::NAME_AND_AGE};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { returns_deleted_object: true, ..StrategyFlags::BUILTIN },
    columns: &NAME_AND_AGE,
    strategy: &ResourceClaim { template: true },
    ..BuiltinKind::new("resource.k8s.io", "resourceclaimtemplates")
};
