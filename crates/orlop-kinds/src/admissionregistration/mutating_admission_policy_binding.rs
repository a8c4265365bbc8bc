//! MutatingAdmissionPolicyBinding: binds a policy to its parameters.

use super::policy_binding::{self, PolicyBinding};
use crate::{BuiltinKind, StrategyFlags};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags {
        allow_unconditional_update: false,
        qualified_finalizers: false,
        tracks_generation: true,
        ..StrategyFlags::BUILTIN
    },
    columns: &policy_binding::COLUMNS,
    strategy: &PolicyBinding { mutating: true },
    ..BuiltinKind::new("admissionregistration.k8s.io", "mutatingadmissionpolicybindings")
};
